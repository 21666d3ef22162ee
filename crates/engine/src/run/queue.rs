//! Which claim is worked on next: one worker per claim, and dirty again while it runs.
//!
//! An entry holds the messages that named its claim until a look that began after they arrived is
//! over. Work that nobody waits for (a sweep) is done when nothing else is ready.

use std::{
    collections::{BTreeSet, HashMap, VecDeque, hash_map::Entry as Slot},
    time::{Duration, Instant},
};

use carrick_core::Scope;

/// What became of a look at a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// Done for now; to be looked at again after this time, if any.
    Settled(Option<Duration>),
    /// To be tried again after this time.
    Failed(Duration),
}

/// Messages to settle after a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settle<M> {
    /// Acknowledge these.
    Ack(Vec<M>),
    /// Give these back, to come again after this time.
    Nak(Vec<M>, Duration),
}

#[derive(Debug)]
struct Item<M> {
    state: State,
    /// Arrived since the look began, or since the last one.
    waiting: Vec<M>,
    /// Arrived before the look began.
    taken: Vec<M>,
    /// Looks in a row that failed.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In `ready` or in `background`.
    Ready,
    /// Being worked on; whether it must be looked at again afterwards.
    Running { again: bool },
    /// Nothing to do until then.
    Resting(Instant),
    /// Nothing to do; only its failures are remembered until its messages come again.
    Idle,
}

/// The queue; `M` is a message to be settled.
#[derive(Debug)]
pub(super) struct Queue<M> {
    items: HashMap<Scope, Item<M>>,
    ready: VecDeque<Scope>,
    background: VecDeque<Scope>,
    timers: BTreeSet<(Instant, Scope)>,
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Self {
            items: HashMap::new(),
            ready: VecDeque::new(),
            background: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }
}

impl<M> Queue<M> {
    /// Something about `scope` has changed: it is looked at next, and again if it is being looked
    /// at.
    pub(super) fn push(&mut self, scope: Scope, message: Option<M>) {
        self.wake(scope, message, false);
    }

    /// `scope` is to be looked at when nothing else is ready.
    pub(super) fn push_background(&mut self, scope: Scope) {
        self.wake(scope, None, true);
    }

    fn wake(&mut self, scope: Scope, message: Option<M>, background: bool) {
        let line = if background { &mut self.background } else { &mut self.ready };
        match self.items.entry(scope) {
            Slot::Vacant(slot) => {
                line.push_back(slot.key().clone());
                slot.insert(Item {
                    state: State::Ready,
                    waiting: message.into_iter().collect(),
                    taken: Vec::new(),
                    failures: 0,
                });
            }
            Slot::Occupied(mut slot) => {
                let scope = slot.key().clone();
                let item = slot.get_mut();
                item.waiting.extend(message);
                match item.state {
                    State::Ready => {}
                    State::Running { .. } => item.state = State::Running { again: true },
                    State::Resting(until) => {
                        self.timers.remove(&(until, scope.clone()));
                        item.state = State::Ready;
                        line.push_back(scope);
                    }
                    State::Idle => {
                        item.state = State::Ready;
                        line.push_back(scope);
                    }
                }
            }
        }
    }

    /// Wakes what has rested long enough.
    pub(super) fn tick(&mut self, now: Instant) {
        while let Some((until, _)) = self.timers.first() {
            if *until > now {
                break;
            }
            let Some((_, scope)) = self.timers.pop_first() else {
                break;
            };
            if let Some(item) = self.items.get_mut(&scope) {
                item.state = State::Ready;
                self.ready.push_back(scope);
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(until, _)| *until)
    }

    /// The next claim to look at, and how often in a row that failed so far.
    pub(super) fn next(&mut self) -> Option<(Scope, u32)> {
        let scope = self.ready.pop_front().or_else(|| self.background.pop_front())?;
        let item = self.items.get_mut(&scope)?;
        item.state = State::Running { again: false };
        item.taken.append(&mut item.waiting);
        Some((scope, item.failures))
    }

    /// The messages that a look at `scope` will settle.
    pub(super) fn taken(&self, scope: &Scope) -> &[M] {
        self.items.get(scope).map_or(&[], |item| &item.taken)
    }

    /// A look at `scope` is over.
    pub(super) fn finish(&mut self, scope: &Scope, finished: Finished, now: Instant) -> Settle<M> {
        let Some(item) = self.items.get_mut(scope) else {
            return Settle::Ack(Vec::new());
        };
        let again = matches!(item.state, State::Running { again: true });
        let messages = std::mem::take(&mut item.taken);
        let (rest, settle) = match finished {
            Finished::Settled(recheck) => {
                item.failures = 0;
                (recheck, Settle::Ack(messages))
            }
            // Messages come again by themselves; what came without one is woken here.
            Finished::Failed(delay) => {
                item.failures = item.failures.saturating_add(1);
                let rest = messages.is_empty().then_some(delay);
                (rest, Settle::Nak(messages, delay))
            }
        };
        if again {
            item.state = State::Ready;
            self.ready.push_back(scope.clone());
        } else if let Some(delay) = rest {
            let until = now + delay;
            item.state = State::Resting(until);
            self.timers.insert((until, scope.clone()));
        } else if item.failures > 0 {
            item.state = State::Idle;
        } else {
            self.items.remove(scope);
        }
        settle
    }

    /// How many claims are known here.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// How many claims wait to be looked at because something happened.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// All messages that are not settled.
    pub(super) fn drain(&mut self) -> Vec<M> {
        let items = std::mem::take(&mut self.items);
        items.into_values().flat_map(|item| item.taken.into_iter().chain(item.waiting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_core::ClaimKey;

    fn claim(name: &str) -> Scope {
        Scope::Claim(ClaimKey::new("acme", "team-a", name))
    }

    fn now() -> Instant {
        Instant::now()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_claim_is_looked_at_once_for_many_messages() {
        let mut queue = Queue::default();
        queue.push(claim("a"), Some(1));
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        assert_eq!(queue.next(), None, "it is looked at by one worker only");
        let settle = queue.finish(&claim("a"), Finished::Settled(None), now());
        assert_eq!(settle, Settle::Ack(vec![1, 2]));
        assert_eq!((queue.next(), queue.len()), (None, 0), "and then forgotten");
    }

    #[test]
    fn what_arrives_during_a_look_makes_another_and_is_settled_by_that() {
        let mut queue = Queue::default();
        queue.push(claim("a"), Some(1));
        queue.next();
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), None);
        let settle = queue.finish(&claim("a"), Finished::Settled(None), now());
        assert_eq!(settle, Settle::Ack(vec![1]));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        let settle = queue.finish(&claim("a"), Finished::Settled(None), now());
        assert_eq!(settle, Settle::Ack(vec![2]));
    }

    #[test]
    fn a_failure_gives_messages_back_and_is_counted_until_a_success() {
        let mut queue = Queue::default();
        queue.push(claim("a"), Some(1));
        queue.next();
        let settle = queue.finish(&claim("a"), Finished::Failed(SECOND), now());
        assert_eq!(settle, Settle::Nak(vec![1], SECOND));
        assert_eq!(queue.next_timer(), None, "the message will come again by itself");
        queue.push(claim("a"), Some(1));
        assert_eq!(queue.next(), Some((claim("a"), 1)));
        queue.finish(&claim("a"), Finished::Settled(None), now());
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
    }

    #[test]
    fn a_failure_without_a_message_is_tried_again_from_here() {
        let mut queue: Queue<u32> = Queue::default();
        queue.push(claim("a"), None);
        queue.next();
        let start = now();
        queue.finish(&claim("a"), Finished::Failed(SECOND), start);
        queue.tick(start);
        assert_eq!(queue.next(), None);
        queue.tick(start + SECOND);
        assert_eq!(queue.next(), Some((claim("a"), 1)));
    }

    #[test]
    fn a_recheck_comes_after_its_time_and_a_message_comes_before_it() {
        let mut queue = Queue::default();
        queue.push(claim("a"), Some(1));
        queue.next();
        let start = now();
        queue.finish(&claim("a"), Finished::Settled(Some(SECOND)), start);
        assert_eq!(queue.next_timer(), Some(start + SECOND));
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        assert_eq!(queue.next_timer(), None, "the old timer is gone");
    }

    #[test]
    fn a_sweep_waits_for_what_happened() {
        let mut queue: Queue<u32> = Queue::default();
        queue.push_background(claim("swept"));
        queue.push(claim("a"), None);
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        assert_eq!(queue.next(), Some((claim("swept"), 0)));
    }

    #[test]
    fn nothing_is_lost_at_the_end() {
        let mut queue = Queue::default();
        queue.push(claim("a"), Some(1));
        queue.next();
        queue.push(claim("a"), Some(2));
        queue.push(claim("b"), Some(3));
        let mut messages = queue.drain();
        messages.sort_unstable();
        assert_eq!(messages, vec![1, 2, 3]);
    }
}
