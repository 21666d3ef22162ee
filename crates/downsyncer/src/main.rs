//! The `carrick-downsyncer` process.

fn main() -> std::process::ExitCode {
    carrick_engine::service_main(carrick_downsyncer::SERVICE, carrick_downsyncer::run)
}
