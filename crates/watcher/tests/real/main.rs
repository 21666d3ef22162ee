//! The watcher as the process that users run, with real control planes and a real nats-server.

mod facts;
mod lead;
mod support;
mod tenants;
