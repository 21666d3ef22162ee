//! Which claim is worked on next: one worker per claim, and dirty again while it runs.
//!
//! An entry holds the messages that named its claim until a look that began after they arrived is
//! over. Tenants take turns, and none has all the workers. Work that nobody waits for (a sweep) is
//! done when nothing else is ready.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::{Duration, Instant},
};

use carrick_core::Scope;

use super::lines::Lines;

/// Messages are kept during a pause as short as this, and given back before a longer one.
const IN_HAND: Duration = Duration::from_secs(1);

/// How long a claim is left to change further, when nobody waits for what has changed.
const LATER: Duration = Duration::from_millis(500);

/// What became of a look at a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// Done for now; to be looked at again after this time, if any.
    Settled(Option<Duration>),
    /// To be tried again after this time.
    Failed(Duration),
    /// It was not looked at, or in vain and by no fault of its own: to be tried after this time.
    Parked(Duration),
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
    /// Whether any of them is urgent.
    hurry: bool,
    /// Arrived before the look began.
    taken: Vec<M>,
    /// Looks in a row that failed.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In `ready` or in `background`.
    Ready,
    /// Being worked on; whether it must be looked at again afterwards, whatever has arrived.
    Running { again: bool },
    /// Nothing to do until then.
    Resting(Instant),
    /// Nothing to do; only its failures are remembered until its messages come again.
    Idle,
}

impl<M> Item<M> {
    fn idle() -> Self {
        Self {
            state: State::Idle,
            waiting: Vec::new(),
            hurry: false,
            taken: Vec::new(),
            failures: 0,
        }
    }
}

/// The queue; `M` is a message to be settled.
#[derive(Debug)]
pub(super) struct Queue<M> {
    items: HashMap<Scope, Item<M>>,
    ready: Lines,
    background: Lines,
    timers: BTreeSet<(Instant, Scope)>,
    /// How many claims of each tenant are being worked on.
    running: HashMap<String, usize>,
    /// How many of all tenants together may be, so that one more finds a worker.
    share: usize,
}

impl<M> Queue<M> {
    /// An empty one; tenants share `share` workers, and each has one at least.
    pub(super) fn new(share: usize) -> Self {
        Self {
            items: HashMap::new(),
            ready: Lines::default(),
            background: Lines::default(),
            timers: BTreeSet::new(),
            running: HashMap::new(),
            share,
        }
    }

    /// Something about `scope` has changed: it is looked at next, and again if it is being looked
    /// at.
    pub(super) fn push(&mut self, scope: Scope, message: Option<M>) {
        self.wake(scope, message, false);
    }

    /// `scope` is to be looked at when nothing else is ready.
    pub(super) fn push_background(&mut self, scope: Scope) {
        self.wake(scope, None, true);
    }

    /// Something about `scope` has changed that nobody waits for: what changes within a moment is
    /// looked at together.
    pub(super) fn push_later(&mut self, scope: Scope, message: M, now: Instant) {
        let later = now + LATER;
        let item = self.items.entry(scope.clone()).or_insert_with(Item::idle);
        item.waiting.push(message);
        match item.state {
            State::Ready | State::Running { .. } => return,
            State::Resting(until) if until <= later => return,
            State::Resting(until) => {
                self.timers.remove(&(until, scope.clone()));
            }
            State::Idle => {}
        }
        item.state = State::Resting(later);
        self.timers.insert((later, scope));
    }

    fn wake(&mut self, scope: Scope, message: Option<M>, background: bool) {
        let line = if background { &mut self.background } else { &mut self.ready };
        let item = self.items.entry(scope.clone()).or_insert_with(Item::idle);
        match item.state {
            State::Ready => {}
            State::Running { again } => {
                item.state = State::Running { again: again || message.is_none() };
            }
            State::Resting(until) => {
                self.timers.remove(&(until, scope.clone()));
                item.state = State::Ready;
                line.push(scope);
            }
            State::Idle => {
                item.state = State::Ready;
                line.push(scope);
            }
        }
        item.waiting.extend(message);
        item.hurry = true;
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
                self.ready.push(scope);
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(until, _)| *until)
    }

    /// The next claim to look at, and how often in a row that failed so far.
    pub(super) fn next(&mut self) -> Option<(Scope, u32)> {
        let share = self.share();
        let running = &self.running;
        let may = |tenant: &str| running.get(tenant).is_none_or(|count| *count < share);
        let scope = self.ready.pop(may).or_else(|| self.background.pop(may))?;
        let item = self.items.get_mut(&scope)?;
        item.state = State::Running { again: false };
        item.taken.append(&mut item.waiting);
        item.hurry = false;
        *self.running.entry(scope.tenant().to_owned()).or_default() += 1;
        Some((scope, item.failures))
    }

    /// How many claims of one tenant may be worked on now: the more tenants have work, the fewer, so
    /// that slow ones together leave something to the next.
    fn share(&self) -> usize {
        let in_line = self.ready.tenants().chain(self.background.tenants());
        let busy: HashSet<_> = self.running.keys().chain(in_line).collect();
        (self.share / busy.len().max(1)).max(1)
    }

    /// The messages that a look at `scope` will settle.
    pub(super) fn taken(&self, scope: &Scope) -> &[M] {
        self.items.get(scope).map_or(&[], |item| &item.taken)
    }

    /// A look at `scope` is over. What arrived meanwhile and is `known` by now asks for no other.
    pub(super) fn finish(
        &mut self,
        scope: &Scope,
        finished: Finished,
        known: impl Fn(&M) -> bool,
        now: Instant,
    ) -> Settle<M> {
        let Some(item) = self.items.get_mut(scope) else {
            return Settle::Ack(Vec::new());
        };
        if let Some(count) = self.running.get_mut(scope.tenant()) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(scope.tenant());
            }
        }
        let mut messages = std::mem::take(&mut item.taken);
        let (rest, settle) = match finished {
            Finished::Settled(recheck) => {
                item.failures = 0;
                messages.extend(item.waiting.extract_if(.., |message| known(message)));
                (recheck, Settle::Ack(messages))
            }
            Finished::Failed(pause) | Finished::Parked(pause) => {
                if matches!(finished, Finished::Failed(_)) {
                    item.failures = item.failures.saturating_add(1);
                }
                if messages.is_empty() || pause <= IN_HAND {
                    item.taken = messages;
                    (Some(pause), Settle::Ack(Vec::new()))
                } else {
                    // They come again by themselves; a claim that is parked is not left to that.
                    let rest = matches!(finished, Finished::Parked(_)).then_some(pause);
                    (rest, Settle::Nak(messages, pause))
                }
            }
        };
        let again = item.state == State::Running { again: true };
        let (news, hurry) = (!item.waiting.is_empty(), item.hurry);
        let later = (news && !hurry).then_some(LATER);
        if again || (news && hurry) {
            item.state = State::Ready;
            self.ready.push(scope.clone());
        } else if let Some(pause) = rest.into_iter().chain(later).min() {
            let until = now + pause;
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

    fn queue() -> Queue<u32> {
        Queue::new(usize::MAX)
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "what `finish` asks for")]
    fn unknown(_: &u32) -> bool {
        false
    }

    const SECONDS: Duration = Duration::from_secs(2);

    #[test]
    fn a_claim_is_looked_at_once_for_many_messages() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        assert_eq!(queue.next(), None, "it is looked at by one worker only");
        let settle = queue.finish(&claim("a"), Finished::Settled(None), unknown, now());
        assert_eq!(settle, Settle::Ack(vec![1, 2]));
        assert_eq!((queue.next(), queue.len()), (None, 0), "and then forgotten");
    }

    #[test]
    fn what_arrives_during_a_look_makes_another_and_is_settled_by_that() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), None);
        let settle = queue.finish(&claim("a"), Finished::Settled(None), unknown, now());
        assert_eq!(settle, Settle::Ack(vec![1]));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        let settle = queue.finish(&claim("a"), Finished::Settled(None), unknown, now());
        assert_eq!(settle, Settle::Ack(vec![2]));
    }

    #[test]
    fn a_failure_gives_messages_back_and_is_counted_until_a_success() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        let settle = queue.finish(&claim("a"), Finished::Failed(SECONDS), unknown, now());
        assert_eq!(settle, Settle::Nak(vec![1], SECONDS));
        assert_eq!(queue.next_timer(), None, "the message will come again by itself");
        queue.push(claim("a"), Some(1));
        assert_eq!(queue.next(), Some((claim("a"), 1)));
        queue.finish(&claim("a"), Finished::Settled(None), unknown, now());
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
    }

    #[test]
    fn what_a_look_knew_already_makes_no_other() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        queue.push(claim("a"), Some(2));
        queue.push(claim("a"), Some(3));
        let settled = Finished::Settled(None);
        let settle = queue.finish(&claim("a"), settled, |message| *message == 2, now());
        assert_eq!(settle, Settle::Ack(vec![1, 2]));
        assert_eq!(queue.next(), Some((claim("a"), 0)), "3 is news");
        queue.push(claim("a"), Some(4));
        queue.push(claim("a"), None);
        queue.finish(&claim("a"), settled, |_| true, now());
        assert_eq!(queue.next(), Some((claim("a"), 0)), "other news than a message");
        assert_eq!(queue.finish(&claim("a"), settled, unknown, now()), Settle::Ack(vec![]));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn what_nobody_waits_for_is_looked_at_together() {
        let mut queue = queue();
        let start = now();
        queue.push_later(claim("a"), 1, start);
        queue.push_later(claim("a"), 2, start + LATER / 2);
        assert_eq!(queue.next(), None);
        queue.tick(start + LATER);
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        queue.push_later(claim("a"), 3, start);
        let settled = Finished::Settled(Some(60 * SECONDS));
        let settle = queue.finish(&claim("a"), settled, unknown, start);
        assert_eq!(settle, Settle::Ack(vec![1, 2]));
        assert_eq!(queue.next_timer(), Some(start + LATER), "and not after the recheck's time");
        queue.push(claim("a"), Some(4));
        assert_eq!(queue.next(), Some((claim("a"), 0)), "at once with what is urgent");
        let settle = queue.finish(&claim("a"), settled, unknown, start);
        assert_eq!(settle, Settle::Ack(vec![3, 4]));
        queue.push_later(claim("a"), 5, start);
        assert_eq!(queue.next_timer(), Some(start + LATER), "before the recheck");
    }

    #[test]
    fn a_short_pause_keeps_the_messages() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        let start = now();
        let settle = queue.finish(&claim("a"), Finished::Failed(IN_HAND), unknown, start);
        assert_eq!(settle, Settle::Ack(vec![]));
        queue.tick(start + IN_HAND);
        assert_eq!(queue.next(), Some((claim("a"), 1)));
        let settle = queue.finish(&claim("a"), Finished::Settled(None), unknown, now());
        assert_eq!(settle, Settle::Ack(vec![1]));
    }

    #[test]
    fn tenants_take_turns_and_none_has_all_the_workers() {
        let of = |tenant: &str, name: &str| Scope::Claim(ClaimKey::new(tenant, "team-a", name));
        let mut queue: Queue<u32> = Queue::new(4);
        for name in ["a", "b", "c", "d", "e", "f"] {
            queue.push(of("greedy", name), None);
        }
        let taken = std::iter::from_fn(|| queue.next()).count();
        assert_eq!(taken, 4, "alone");
        queue.push(of("quiet", "a"), None);
        queue.push_background(of("modest", "a"));
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(scope, _)| scope).collect();
        assert_eq!(order, [of("quiet", "a"), of("modest", "a")]);
        for name in ["a", "b", "c"] {
            queue.finish(&of("greedy", name), Finished::Settled(None), unknown, now());
            assert_eq!(queue.next(), None, "it still has its share of one");
        }
        queue.finish(&of("greedy", "d"), Finished::Settled(None), unknown, now());
        assert_eq!(queue.next(), Some((of("greedy", "e"), 0)));
    }

    #[test]
    fn what_is_parked_has_not_failed() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        let start = now();
        let settle = queue.finish(&claim("a"), Finished::Parked(SECONDS), unknown, start);
        assert_eq!(settle, Settle::Nak(vec![1], SECONDS));
        queue.tick(start + SECONDS);
        assert_eq!(queue.next(), Some((claim("a"), 0)));
    }

    #[test]
    fn a_failure_without_a_message_is_tried_again_from_here() {
        let mut queue = queue();
        queue.push(claim("a"), None);
        queue.next();
        let start = now();
        queue.finish(&claim("a"), Finished::Failed(SECONDS), unknown, start);
        queue.tick(start);
        assert_eq!(queue.next(), None);
        queue.tick(start + SECONDS);
        assert_eq!(queue.next(), Some((claim("a"), 1)));
    }

    #[test]
    fn a_recheck_comes_after_its_time_and_a_message_comes_before_it() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        let start = now();
        queue.finish(&claim("a"), Finished::Settled(Some(SECONDS)), unknown, start);
        assert_eq!(queue.next_timer(), Some(start + SECONDS));
        queue.push(claim("a"), Some(2));
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        assert_eq!(queue.next_timer(), None, "the old timer is gone");
    }

    #[test]
    fn a_sweep_waits_for_what_happened() {
        let mut queue = queue();
        queue.push_background(claim("swept"));
        queue.push(claim("a"), None);
        assert_eq!(queue.next(), Some((claim("a"), 0)));
        assert_eq!(queue.next(), Some((claim("swept"), 0)));
    }

    #[test]
    fn nothing_is_lost_at_the_end() {
        let mut queue = queue();
        queue.push(claim("a"), Some(1));
        queue.next();
        queue.push(claim("a"), Some(2));
        queue.push(claim("b"), Some(3));
        let mut messages = queue.drain();
        messages.sort_unstable();
        assert_eq!(messages, vec![1, 2, 3]);
    }
}
