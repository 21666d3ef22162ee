//! A model of the whole, for a model checker: one claim name of one tenant, the two API servers, the
//! bus, the binders, the people on both sides, and the services' own decision functions.
//!
//! What the watcher has published of an object may be any of its states, in order; a service looks at
//! what is published, asks the API servers where its decision wants that, and does its writes later,
//! one by one, or never. Several looks may be under way at a time, also of one service: a replica. So
//! every delay, every crash between two writes, and every duplicate is among the paths.
//!
//! The checker goes through every path ([`World`] says which people do what) and looks at each write
//! and each state at rest for the rules of [`rules`]. A rule that was broken on purpose
//! ([`Broken`]) has to be found.

mod api;
mod look;
pub mod rules;
mod world;
pub mod worlds;

pub use api::Object;
pub use look::{Broken, Service};
pub use world::{Act, Budget, State, World};
