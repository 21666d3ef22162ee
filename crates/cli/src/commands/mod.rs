//! The commands, one file each.

pub(crate) mod dev;
pub(crate) mod get;
pub(crate) mod tap;
pub(crate) mod tenant;
