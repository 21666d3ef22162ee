//! Generates the messages and their proto3 JSON form. Needs no protoc.

use std::{error::Error, path::Path};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("../../proto");
    let file = root.join("carrick/v1/step.proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile([&file], [root])?;
    let bytes = descriptors.encode_to_vec();
    prost_build::Config::new()
        .btree_map(["."])
        .compile_well_known_types()
        .extern_path(".google.protobuf", "::pbjson_types")
        .compile_fds(descriptors)?;
    // A reader of today meets messages of a newer sender during an upgrade.
    pbjson_build::Builder::new()
        .register_descriptors(&bytes)?
        .ignore_unknown_fields()
        .build(&[".carrick.v1"])?;
    Ok(())
}
