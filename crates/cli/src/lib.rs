//! carrick: the command line of Carrick
