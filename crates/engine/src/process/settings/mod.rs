//! Settings of a process, each by flag and by environment variable, in groups that a command takes
//! with `#[clap(flatten)]`.
//!
//! Clap stops at the first value that it cannot parse, so the groups keep values as text and
//! [`Validate`] reports every wrong one at once. What comes out is plain data; nothing here
//! connects to anything.
#![allow(
    clippy::doc_markdown,
    reason = "the comments on arguments are help texts, which are shown as they stand"
)]

mod bus;
mod cluster;
mod problems;
mod process;

pub use bus::{BusArgs, BusAuth, BusSettings, BusTls, StreamSettings};
pub use cluster::{HostArgs, HostSettings, TargetArgs, TargetSettings};
pub use problems::{
    Problems, address, bytes, dns_label, duration, number, readable_file, variable,
};
pub use process::{LogFormat, LogSettings, LoopArgs, LoopSettings, ProcessArgs, ProcessSettings};

/// A group of settings as given, that can be checked as a whole.
pub trait Validate: clap::Args {
    /// The checked settings.
    type Settings: Send + 'static;

    /// The checked settings, or everything that is wrong with them: one line for each, with flag,
    /// variable, value and what is allowed.
    fn validate(&self) -> Result<Self::Settings, Vec<String>>;
}

/// No settings.
impl Validate for () {
    type Settings = ();

    fn validate(&self) -> Result<(), Vec<String>> {
        Ok(())
    }
}

/// The settings that every service has, as given.
#[derive(clap::Args, Clone, Debug)]
pub struct ServiceArgs {
    #[clap(flatten)]
    host: HostArgs,
    #[clap(flatten)]
    target: TargetArgs,
    #[clap(flatten)]
    bus: BusArgs,
    #[clap(flatten)]
    process: ProcessArgs,
    #[clap(flatten)]
    run: LoopArgs,
}

/// The settings that every service has.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The host cluster.
    pub host: HostSettings,
    /// The sync target: this installation.
    pub target: TargetSettings,
    /// The bus.
    pub bus: BusSettings,
    /// The process.
    pub process: ProcessSettings,
    /// The loop.
    pub run: LoopSettings,
}

impl Validate for ServiceArgs {
    type Settings = Settings;

    fn validate(&self) -> Result<Settings, Vec<String>> {
        let Self { host, target, bus, process, run } = self;
        let mut problems = Problems::default();
        let host = problems.group(host.validate());
        let target = problems.group(target.validate());
        let bus = problems.group(bus.validate());
        let process = problems.group(process.validate());
        let run = problems.group(run.validate());
        problems.finish(|| {
            let (host, target, bus) = (host?, target?, bus?);
            Some(Settings { host, target, bus, process: process?, run: run? })
        })
    }
}

#[cfg(test)]
mod tests;
