//! Carrick service: status-syncer
