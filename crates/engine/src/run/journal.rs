//! Which steps to publish: one that changed something, or whose outcome is another than before.

use std::collections::{BTreeMap, HashMap};

use carrick_core::{Outcome, Reason, Scope, Step, StepRecord, Verdict};

/// How a step stands, as far as others need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    outcome: Outcome,
    code: String,
    message: String,
}

/// A step to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) step: Step,
    pub(super) outcome: Outcome,
    pub(super) reason: Option<Reason>,
    pub(super) writes: Vec<&'static str>,
}

/// The steps of this service that are not done, as they were published last.
#[derive(Debug, Default)]
pub(super) struct Journal {
    open: HashMap<Scope, BTreeMap<Step, Standing>>,
}

impl Journal {
    /// Takes over what was published before this process began.
    pub(super) fn recall(&mut self, scope: &Scope, records: &[StepRecord], step: Step) {
        let record = records.iter().find(|record| record.step == step);
        if let Some(record) = record.filter(|record| record.outcome != Outcome::Done) {
            let standing = Standing {
                outcome: record.outcome,
                code: record.code.clone(),
                message: record.message.clone(),
            };
            self.open.entry(scope.clone()).or_default().insert(step, standing);
        }
    }

    /// Whether anything is known of a step of `scope`.
    pub(super) fn knows(&self, scope: &Scope, step: Step) -> bool {
        self.open.get(scope).is_some_and(|steps| steps.contains_key(&step))
    }

    /// How a look ended. What was refused or held and is now left alone stands in nobody's way.
    pub(super) fn ended(
        &self,
        scope: &Scope,
        step: Step,
        verdict: &Verdict,
    ) -> Option<(Step, Outcome, Option<Reason>)> {
        let open = self.open.get(scope).and_then(|steps| steps.get(&step));
        let in_the_way =
            open.is_some_and(|known| matches!(known.outcome, Outcome::Refused | Outcome::Held));
        match verdict.outcome() {
            Some((outcome, reason)) => Some((step, outcome, reason.cloned())),
            None => in_the_way.then_some((step, Outcome::Done, None)),
        }
    }

    /// What to publish after a look that wrote this, by step in order, and ended so.
    pub(super) fn entries(
        &self,
        scope: &Scope,
        wrote: &[(Step, &'static str)],
        ended: Option<(Step, Outcome, Option<Reason>)>,
    ) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (step, why) in wrote {
            match entries.last_mut().filter(|entry| entry.step == *step) {
                Some(entry) => entry.writes.push(why),
                None => entries.push(Entry {
                    step: *step,
                    outcome: Outcome::Done,
                    reason: None,
                    writes: vec![why],
                }),
            }
        }
        let Some((step, outcome, reason)) = ended else {
            return entries;
        };
        let open = self.open.get(scope);
        for before in open.into_iter().flat_map(BTreeMap::keys).filter(|open| **open < step) {
            if !entries.iter().any(|entry| entry.step == *before) {
                let done = Outcome::Done;
                entries.push(Entry { step: *before, outcome: done, reason: None, writes: vec![] });
            }
        }
        entries.sort_by_key(|entry| entry.step);
        let known = open.and_then(|steps| steps.get(&step));
        let same = match (known, &reason) {
            (Some(known), Some(reason)) => {
                known.outcome == outcome
                    && known.code == reason.code
                    && known.message == reason.message
            }
            (Some(_), None) => false,
            (None, _) => outcome == Outcome::Done,
        };
        match entries.iter_mut().find(|entry| entry.step == step) {
            Some(entry) => (entry.outcome, entry.reason) = (outcome, reason),
            None if !same => entries.push(Entry { step, outcome, reason, writes: vec![] }),
            None => {}
        }
        entries
    }

    /// Remembers what was published.
    pub(super) fn published(&mut self, scope: &Scope, entry: &Entry) {
        if entry.outcome == Outcome::Done {
            if let Some(steps) = self.open.get_mut(scope) {
                steps.remove(&entry.step);
                if steps.is_empty() {
                    self.open.remove(scope);
                }
            }
            return;
        }
        let (code, message) = entry
            .reason
            .as_ref()
            .map(|reason| (reason.code.to_owned(), reason.message.clone()))
            .unwrap_or_default();
        let standing = Standing { outcome: entry.outcome, code, message };
        self.open.entry(scope.clone()).or_default().insert(entry.step, standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_core::ClaimKey;

    fn scope() -> Scope {
        Scope::Claim(ClaimKey::new("acme", "team-a", "data"))
    }

    fn waiting(message: &str) -> (Step, Outcome, Option<Reason>) {
        (Step::Bind, Outcome::Waiting, Some(Reason::new("WaitingForHost", message)))
    }

    fn take(
        journal: &mut Journal,
        wrote: &[(Step, &'static str)],
        ended: Option<(Step, Outcome, Option<Reason>)>,
    ) -> Vec<(Step, Outcome, usize)> {
        let entries = journal.entries(&scope(), wrote, ended);
        for entry in &entries {
            journal.published(&scope(), entry);
        }
        entries.iter().map(|e| (e.step, e.outcome, e.writes.len())).collect()
    }

    #[test]
    fn a_step_is_said_when_its_outcome_changes_and_not_at_every_look() {
        let mut journal = Journal::default();
        let said = take(&mut journal, &[], Some(waiting("a")));
        assert_eq!(said, [(Step::Bind, Outcome::Waiting, 0)]);
        assert_eq!(take(&mut journal, &[], Some(waiting("a"))), []);
        assert_eq!(
            take(&mut journal, &[], Some(waiting("b"))),
            [(Step::Bind, Outcome::Waiting, 0)]
        );
        let done = Some((Step::Bind, Outcome::Done, None));
        assert_eq!(take(&mut journal, &[], done.clone()), [(Step::Bind, Outcome::Done, 0)]);
        assert_eq!(take(&mut journal, &[], done), []);
    }

    #[test]
    fn a_later_step_ends_the_waiting_of_an_earlier_one() {
        let mut journal = Journal::default();
        take(&mut journal, &[], Some(waiting("a")));
        let wrote = [(Step::Transform, "marks")];
        let done = Some((Step::Transform, Outcome::Done, None));
        assert_eq!(
            take(&mut journal, &wrote, done),
            [(Step::Bind, Outcome::Done, 0), (Step::Transform, Outcome::Done, 1)]
        );
    }

    #[test]
    fn writes_are_said_by_step() {
        let mut journal = Journal::default();
        let wrote = [(Step::Release, "r"), (Step::Status, "n"), (Step::Status, "s")];
        let done = Some((Step::Status, Outcome::Done, None));
        assert_eq!(
            take(&mut journal, &wrote, done),
            [(Step::Release, Outcome::Done, 1), (Step::Status, Outcome::Done, 2)]
        );
        assert_eq!(take(&mut journal, &[], None), []);
    }

    #[test]
    fn a_refusal_is_taken_back_when_the_claim_is_left_alone() {
        let mut journal = Journal::default();
        let ignored = Verdict::Ignored(None);
        assert_eq!(journal.ended(&scope(), Step::Claim, &ignored), None);
        let refused = Verdict::Refused(Reason::new("ClassNotAllowed", "no"), None);
        let ended = journal.ended(&scope(), Step::Claim, &refused);
        assert_eq!(take(&mut journal, &[], ended), [(Step::Claim, Outcome::Refused, 0)]);
        let ended = journal.ended(&scope(), Step::Claim, &ignored);
        assert_eq!(take(&mut journal, &[], ended), [(Step::Claim, Outcome::Done, 0)]);
        assert_eq!(journal.ended(&scope(), Step::Claim, &ignored), None);
    }

    #[test]
    fn what_was_said_before_a_restart_is_not_said_again() {
        let mut journal = Journal::default();
        let record = StepRecord {
            step: Step::Bind,
            outcome: Outcome::Waiting,
            code: "WaitingForHost".into(),
            message: "a".into(),
            claim_uid: "u".into(),
            time: jiff::Timestamp::UNIX_EPOCH,
        };
        journal.recall(&scope(), &[record], Step::Bind);
        assert!(journal.knows(&scope(), Step::Bind));
        assert_eq!(take(&mut journal, &[], Some(waiting("a"))), []);
    }
}
