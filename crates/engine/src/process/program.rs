//! A process: one service, or several, under one supervisor with one admin server.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use futures::Stream;
use tracing::Instrument;

use super::{
    Failure, Gate, Metrics, Readiness, ServiceArgs, Settings, SharedRegistry, Shutdown, Supervisor,
    Tasks, Validate, admin::Admin, logs, settings::ProcessSettings, tasks::signals,
};

/// What a service's function is given. `A` are the settings that only this service has.
#[derive(Debug)]
pub struct Context<A: Validate = ()> {
    /// The service's name.
    pub service: &'static str,
    /// The settings that every service has.
    pub settings: Settings,
    /// The settings that only this service has.
    pub own: A::Settings,
    /// Starts tasks that end with the process.
    pub tasks: Tasks,
    /// Cancelled once the service is to end.
    pub shutdown: Shutdown,
    /// Registers what the service must have before it is ready.
    pub readiness: Readiness,
    /// The gate `start`: the service opens it once its own gates are registered.
    pub started: Gate,
    /// What the loop counts.
    pub metrics: Metrics,
    /// For metrics of the service's own.
    pub registry: SharedRegistry,
}

/// A process of one or more services.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    settings: ProcessSettings,
    supervisor: Supervisor,
    readiness: Readiness,
    registry: SharedRegistry,
    metrics: Option<Metrics>,
}

impl Program {
    /// A process without services yet.
    pub fn new(name: &'static str, settings: ProcessSettings) -> Self {
        Self {
            name,
            supervisor: Supervisor::new(settings.shutdown_timeout),
            settings,
            readiness: Readiness::default(),
            registry: SharedRegistry::new(),
            metrics: None,
        }
    }

    /// Adds a service: `run` is to return only after the shutdown. Where the service is not the
    /// process, its gates have its name before theirs.
    pub fn add<A, R, F>(
        &mut self,
        service: &'static str,
        settings: Settings,
        own: A::Settings,
        run: R,
    ) where
        A: Validate + 'static,
        R: FnOnce(Context<A>) -> F + Send + 'static,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let registry = self.registry.clone();
        let metrics = match &self.metrics {
            Some(metrics) => metrics.for_service(service),
            None => Metrics::register(&registry, service),
        };
        self.metrics.get_or_insert_with(|| metrics.clone());
        let readiness = if service == self.name {
            self.readiness.clone()
        } else {
            self.readiness.with_prefix(format!("{service}: "))
        };
        let started = readiness.gate("start");
        let (tasks, shutdown) = (self.tasks().clone(), self.shutdown().clone());
        let span = tracing::error_span!("service", service, instance = settings.process.instance);
        let context = Context {
            service,
            settings,
            own,
            tasks,
            shutdown,
            readiness,
            started,
            metrics,
            registry,
        };
        self.tasks().spawn(service, async move { run(context).await }.instrument(span));
    }

    /// Starts further tasks of the process.
    pub fn tasks(&self) -> &Tasks {
        self.supervisor.tasks()
    }

    /// Cancelled once the process is to end; cancelling it ends the process cleanly.
    pub fn shutdown(&self) -> &Shutdown {
        self.supervisor.shutdown()
    }

    /// Registers what the process must have before it is ready.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Runs all services until the first of these signals ([`signals`]), or the first failure.
    pub async fn run(
        self,
        signals: impl Stream<Item = &'static str> + Unpin,
    ) -> Result<(), Failure> {
        let Self { name, settings, supervisor, readiness, registry, metrics: _ } = self;
        let (instance, version) = (settings.instance, env!("CARGO_PKG_VERSION"));
        tracing::info!(program = name, instance, version, "Starting");
        let shutdown = supervisor.shutdown().clone();
        let admin = Admin::bind(settings.admin_address, readiness, registry, shutdown).await?;
        tokio::select! {
            ended = supervisor.run(signals) => ended,
            served = admin.serve() => {
                let served = served.map_err(anyhow::Error::from);
                Err(served.map_or_else(
                    |source| Failure::Failed { name: "admin".to_owned(), source },
                    |()| Failure::Early("admin".to_owned()),
                ))
            }
        }
    }

    /// Runs the process until SIGTERM, SIGINT or the first failure, on a runtime of its own. Logs
    /// must be set up; what went wrong is logged in one line.
    pub fn main(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "The runtime could not be started");
                return ExitCode::FAILURE;
            }
        };
        let ended = runtime.block_on(async { self.run(signals()?).await });
        // What was aborted is not waited for: it had its time.
        runtime.shutdown_background();
        match ended {
            Ok(()) => {
                tracing::info!("Shut down");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                let code = failure.exit_code();
                let error = format!("{:#}", anyhow::Error::new(failure));
                tracing::error!(error, "Ended by a failure");
                ExitCode::from(code)
            }
        }
    }
}

/// What a service is, for its command line.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Its name, as in subjects, metrics and logs: `upsyncer`.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its admin address by default: `127.0.0.1` with a port that no other service has.
    pub admin_address: &'static str,
}

#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli<A: clap::Args> {
    #[clap(flatten)]
    common: ServiceArgs,
    #[clap(flatten)]
    own: A,
}

impl Service {
    /// The command line of the service.
    fn command<A: Validate>(&self) -> clap::Command {
        Cli::<A>::command()
            .name(self.name)
            .bin_name(format!("carrick-{}", self.name))
            .about(self.about)
            .after_help(
                "Every option can be given by its environment variable; the option wins.\n\
                 Exit codes: 0 after a clean shutdown, 1 after a failure, 2 for wrong settings, \
                 130 after a second signal.",
            )
            .mut_arg("admin_address", |arg| arg.default_value(self.admin_address))
    }

    /// The checked settings; an error is what to print and how to exit.
    fn parse<A: Validate>(
        &self,
        args: impl IntoIterator<Item = std::ffi::OsString>,
    ) -> Result<(Settings, A::Settings), clap::Error> {
        let mut command = self.command::<A>();
        let matches = command.try_get_matches_from_mut(args)?;
        let Cli { common, own } = Cli::<A>::from_arg_matches(&matches)?;
        match (common.validate(), own.validate()) {
            (Ok(common), Ok(own)) => Ok((common, own)),
            (common, own) => {
                let mut problems = common.err().unwrap_or_default();
                problems.extend(own.err().unwrap_or_default());
                Err(wrong_settings(&mut command, &problems))
            }
        }
    }
}

/// All problems of the settings as one error of the command: printed to standard error, exit
/// code 2.
pub fn wrong_settings(command: &mut clap::Command, problems: &[String]) -> clap::Error {
    let text = format!("settings are wrong:\n  {}", problems.join("\n  "));
    command.error(ErrorKind::ValueValidation, text)
}

/// The whole `main` of a service: settings, logs, runtime, admin server, supervisor.
///
/// ```no_run
/// # use carrick_engine::{Context, Service, service_main};
/// # const SERVICE: Service =
/// #     Service { name: "upsyncer", about: "Carries up", admin_address: "127.0.0.1:9464" };
/// # async fn run(context: Context) -> anyhow::Result<()> { Ok(()) }
/// fn main() -> std::process::ExitCode {
///     service_main(SERVICE, run)
/// }
/// ```
pub fn service_main<A, R, F>(service: Service, run: R) -> ExitCode
where
    A: Validate + 'static,
    R: FnOnce(Context<A>) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (settings, own) = match service.parse::<A>(std::env::args_os()) {
        Ok(settings) => settings,
        Err(error) => error.exit(),
    };
    if let Err(error) = logs::init(&settings.process.log) {
        eprintln!("{}: {:#}", service.name, anyhow::Error::new(error));
        return ExitCode::FAILURE;
    }
    let mut program = Program::new(service.name, settings.process.clone());
    program.add(service.name, settings, own, run);
    program.main()
}

#[cfg(test)]
mod tests;
