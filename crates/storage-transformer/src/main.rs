//! The `carrick-storage-transformer` process.

fn main() -> std::process::ExitCode {
    carrick_engine::service_main(
        carrick_storage_transformer::SERVICE,
        carrick_storage_transformer::run,
    )
}
