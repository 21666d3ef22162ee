//! Carrick service: storage-transformer
