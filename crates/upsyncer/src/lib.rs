//! Carrick service: upsyncer
