//! Claims that wait to be looked at: tenants take turns.

use std::collections::{HashMap, VecDeque};

use carrick_core::Scope;

/// Claims in line, one line for each tenant.
#[derive(Debug, Default)]
pub(super) struct Lines {
    turns: VecDeque<String>,
    waiting: HashMap<String, VecDeque<Scope>>,
    len: usize,
}

impl Lines {
    /// At the end of its tenant's line.
    pub(super) fn push(&mut self, scope: Scope) {
        self.len += 1;
        let line = self.waiting.entry(scope.tenant().to_owned()).or_default();
        if line.is_empty() {
            self.turns.push_back(scope.tenant().to_owned());
        }
        line.push_back(scope);
    }

    /// The first of the tenant whose turn it is, among those that may have one.
    pub(super) fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<Scope> {
        let turn = self.turns.iter().position(|tenant| may(tenant))?;
        let tenant = self.turns.remove(turn)?;
        let line = self.waiting.get_mut(&tenant)?;
        let scope = line.pop_front()?;
        self.len -= 1;
        if line.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        Some(scope)
    }

    /// Who is in line.
    pub(super) fn tenants(&self) -> impl Iterator<Item = &String> {
        self.waiting.keys()
    }

    /// How many claims are.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
