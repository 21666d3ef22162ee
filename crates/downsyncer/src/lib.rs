//! Carrick service: downsyncer
