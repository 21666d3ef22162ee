//! `carrick dev`: all services in one process.

use std::process::ExitCode;

use carrick_engine::{Program, ServiceArgs, Validate as _, logs, wrong_settings};

/// The settings of the services.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    carrick dev --kubeconfig host.yaml --nats-url nats://127.0.0.1:4222 --log-format plain\n\n\
    Exit codes: 0 after a clean shutdown, 1 failed, 2 wrong use, 130 after a second signal.")]
pub(crate) struct Args {
    #[clap(flatten)]
    services: ServiceArgs,
}

/// Runs until a signal, or the first failure.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> ExitCode {
    let settings = match args.services.validate() {
        Ok(settings) => settings,
        Err(problems) => wrong_settings(command, &problems).exit(),
    };
    if let Err(error) = logs::init(&settings.process.log) {
        eprintln!("carrick: {error}");
        return ExitCode::FAILURE;
    }
    let mut program = Program::new("dev", settings.process.clone());
    let s = || settings.clone();
    program.add::<(), _, _>(carrick_watcher::SERVICE.name, s(), (), carrick_watcher::run);
    program.add::<(), _, _>(carrick_downsyncer::SERVICE.name, s(), (), carrick_downsyncer::run);
    let transformer = carrick_storage_transformer::run;
    program.add::<(), _, _>(carrick_storage_transformer::SERVICE.name, s(), (), transformer);
    program.add::<(), _, _>(carrick_upsyncer::SERVICE.name, s(), (), carrick_upsyncer::run);
    let status_syncer = carrick_status_syncer::run;
    program.add::<(), _, _>(carrick_status_syncer::SERVICE.name, s(), (), status_syncer);
    program.main()
}
