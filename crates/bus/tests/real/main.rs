//! The bus against real NATS servers, alone and as a cluster of three.

mod cluster;
mod connect;
mod consumers;
mod facts;
mod reads;
mod steps;
mod support;
