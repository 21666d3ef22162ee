//! Free loopback ports for servers that must keep theirs over a restart.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Below the range from which the kernel takes the ports of outgoing connections (from 32768 on
/// Linux), so that none of those can take a server's port while the server is down.
const RANGE: std::ops::Range<u16> = 12_000..32_000;
const TRIES: usize = 1_000;

/// What this process has handed out: a port may be promised some time before it is listened on.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nothing listens on and that this process has not handed out before.
pub(crate) fn free_port() -> Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..TRIES {
        let port = rand::random_range(RANGE);
        if !taken.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            taken.insert(port);
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 in {TRIES} tries");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_hands_out_a_port_twice() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn hands_out_ports_that_can_be_listened_on() {
        let port = free_port().unwrap();
        assert!(RANGE.contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
