//! Tests of the whole, on the testbed
