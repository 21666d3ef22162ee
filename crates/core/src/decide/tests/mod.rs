//! The decisions one by one, all together, and the laws that they keep.

mod classes;
mod down;
mod down_way;
mod laws;
mod namespace;
mod ownership;
mod status;
mod tell;
mod transform;
mod undo;
mod upsync;
mod whole_way;
