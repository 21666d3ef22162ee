//! The demo.

use anyhow::{Result, bail};

/// What the demo is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave everything running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// How many claims each tenant makes.
    #[arg(long, default_value_t = 3, value_name = "N")]
    claims: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Args { keep: _, claims: _ } = args;
    bail!("the demo is not built yet");
}
