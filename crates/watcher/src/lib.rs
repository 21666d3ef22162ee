//! Carrick service: watcher
