//! The `carrick-upsyncer` process.

fn main() -> std::process::ExitCode {
    carrick_engine::service_main(carrick_upsyncer::SERVICE, carrick_upsyncer::run)
}
