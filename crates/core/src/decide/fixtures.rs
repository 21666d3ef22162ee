//! Objects for tests.
