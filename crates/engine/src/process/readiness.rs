//! Whether a process is ready: gates that must all be open.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The gates of a process.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    prefix: String,
    gates: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl Readiness {
    /// The same gates, with this before the names of those registered from here on.
    #[must_use]
    pub fn with_prefix(&self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), gates: Arc::clone(&self.gates) }
    }

    /// Registers a gate, closed at first. A gate of the same name is the same gate, closed again.
    pub fn gate(&self, name: &str) -> Gate {
        let gate = Gate { name: format!("{}{name}", self.prefix), gates: Arc::clone(&self.gates) };
        gate.close();
        gate
    }

    /// The gates that are closed, in the order of their names; empty when the process is ready.
    pub fn waiting_for(&self) -> Vec<String> {
        let gates = lock(&self.gates);
        gates.iter().filter(|(_, open)| !**open).map(|(name, _)| name.clone()).collect()
    }
}

/// One thing that a process must have before it is ready. A gate that is dropped stays as it is.
#[derive(Clone, Debug)]
pub struct Gate {
    name: String,
    gates: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl Gate {
    /// The process has it.
    pub fn open(&self) {
        lock(&self.gates).insert(self.name.clone(), true);
    }

    /// The process does not have it, or no longer.
    pub fn close(&self) {
        lock(&self.gates).insert(self.name.clone(), false);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_gates_must_be_open() {
        let readiness = Readiness::default();
        let tenants = readiness.gate("tenants");
        let consumer = readiness.with_prefix("upsyncer: ").gate("consumer");
        assert_eq!(readiness.waiting_for(), ["tenants", "upsyncer: consumer"]);
        consumer.open();
        drop(consumer);
        assert_eq!(readiness.waiting_for(), ["tenants"]);
        tenants.open();
        assert!(readiness.waiting_for().is_empty());
        tenants.close();
        assert_eq!(readiness.waiting_for(), ["tenants"]);
    }
}
