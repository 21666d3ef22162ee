//! The `carrick-watcher` process.

fn main() -> std::process::ExitCode {
    carrick_engine::service_main(carrick_watcher::SERVICE, carrick_watcher::run)
}
