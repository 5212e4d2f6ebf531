//! Requests nobody can be asked about now: they rest on children that are expected, and are judged again when one comes.
//!
//! Real managers tell clients to wait for 15 s or 30 s then, and those who wait come back too late or too soon. Source: cms
//! protocol 3, sections "timers and waits told to clients" and "which waits are needed".

use std::sync::Arc;
use std::time::Duration;

use super::queries::{Token, WAITERS_MAX, Waiter, Wish};
use super::state::Heard;
use super::{Action, PATIENCE, Resolver};
use crate::request::{Answer, ErrorCode};

/// How long a request is held at most, unless configured.
pub const HOLD: Duration = Duration::from_secs(30);

/// A request that is held.
#[derive(Debug)]
pub(super) struct Held {
    path: Arc<[u8]>,
    pub(super) waiter: Waiter,
}

impl Resolver {
    /// Whether requests are held: see [`super::ResolveSettings::hold`].
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whoever asked with these tokens is gone: nothing is to be decided for them any more.
    pub fn abandon(&mut self, mut gone: Vec<Token>) {
        gone.sort_unstable();
        if !gone.is_empty() {
            self.held.retain(|held| gone.binary_search(&held.waiter.token).is_err());
            self.queries.abandon(&gone);
        }
    }

    /// Holds a request until something changes; what the client is told at once if that cannot be.
    pub(super) fn hold(
        &mut self,
        path: &[u8],
        mut waiter: Waiter,
        answer: Option<Answer>,
        now: Duration,
    ) -> Option<Answer> {
        let longest = match waiter.wish {
            // The parent listens no longer.
            Wish::State => self.settings.hold.min(self.settings.silence * PATIENCE),
            _ => self.settings.hold,
        };
        let until = *waiter.held_until.get_or_insert(now.saturating_add(longest));
        if until <= now && !matches!(waiter.wish, Wish::State) && self.is_deserted(now) {
            // Whoever sent the client here has others.
            let text = "No server is here that could have the file.";
            return Some(Answer::error(ErrorCode::SERVER_ERROR, text));
        }
        if until <= now || self.held.len() + self.queries.waiters() >= WAITERS_MAX {
            return answer;
        }
        self.held.push(Held { path: Arc::from(path), waiter });
        None
    }

    /// When a request was held for long enough, or has to be looked at again.
    pub(super) fn next_held(&self) -> Option<Duration> {
        if self.stirred && !self.held.is_empty() {
            return Some(Duration::ZERO);
        }
        let over = self.held.iter().filter_map(|held| held.waiter.held_until).min()?;
        let concerned = |held: &Held| matches!(held.waiter.wish, Wish::State) || self.door.is_some();
        let soon = self.empty_until.filter(|_| self.held.iter().any(concerned));
        Some(soon.map_or(over, |until| until.min(over)))
    }

    /// Judges again what is held, if anything changed, and ends what was held for long enough.
    pub(super) fn look_at_held(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let stirred = std::mem::take(&mut self.stirred);
        let empty = self.empty_until.is_some_and(|until| until <= now);
        if !stirred && self.next_held().is_none_or(|until| until > now) {
            return;
        }
        for held in std::mem::take(&mut self.held) {
            if stirred || empty || held.waiter.held_until.is_none_or(|until| until <= now) {
                self.judge_held(held, now, actions);
            } else {
                self.held.push(held);
            }
        }
    }

    /// Judges again what is held for this path.
    pub(super) fn look_at_path(&mut self, path: &[u8], now: Duration, actions: &mut Vec<Action>) {
        if self.held.is_empty() {
            return;
        }
        let concerned: Vec<Held> = self.held.extract_if(.., |held| *held.path == *path).collect();
        for held in concerned {
            self.judge_held(held, now, actions);
        }
    }

    fn judge_held(&mut self, held: Held, now: Duration, actions: &mut Vec<Action>) {
        let Held { path, waiter } = held;
        // Whoever joined meanwhile.
        self.ask(&path, false, false, now, actions);
        let token = waiter.token;
        if let Wish::State = waiter.wish {
            let rights = self.cell.paths().rights(&path).unwrap_or_default();
            let location = self.known(&path, now);
            match self.judge_state(&location, rights, now) {
                Heard::Say(reply) => actions.push(Action::Reply { token, path, reply }),
                Heard::Await => {
                    if let Some(id) = self.queries.find(&path) {
                        self.queries.wait(id, waiter);
                    }
                }
                Heard::Hold => drop(self.hold(&path, waiter, None, now)),
            }
            return;
        }
        let deserted = self.deserted(now);
        let verdict = self.judge(&path, &waiter.wish, now);
        if let Some(answer) = deserted.or_else(|| self.conclude(&path, verdict, waiter, now)) {
            actions.push(Action::Answer { token, answer });
        }
    }
}
