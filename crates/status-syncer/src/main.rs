//! The `carrick-status-syncer` process.

fn main() -> std::process::ExitCode {
    carrick_engine::service_main(carrick_status_syncer::SERVICE, carrick_status_syncer::run)
}
