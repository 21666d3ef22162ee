//! The CLI as a program, against real control planes and a real bus. Nothing of Carrick but the CLI
//! runs: what the services would say is said here.

mod bus;
mod life;
mod refused;
mod support;
mod undone;
