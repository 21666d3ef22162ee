//! Messages of Carrick, generated from proto/carrick/v1
