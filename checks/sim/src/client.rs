//! Clients as real ones are: they follow redirects, come back from where they failed with the list of what they tried,
//! wait when they are told to, take answers that come later, and turn to another manager when one is away.

use std::time::Duration;

use cluster::Reason;

use crate::host::Host;
use crate::lot::Lot;
use crate::talk::{Name, Request, Told, Wish};

/// Redirects that a client follows before it calls it a loop: as many as real ones.
pub const REDIRECTS_MAX: u32 = 16;

/// Returns to the manager from places that failed, before a client gives up.
pub const RETURNS_MAX: u32 = 40;

/// After so long without a word a client takes its connection for broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same when it was told that the answer comes later.
const PATIENCE_LATER: Duration = Duration::from_secs(40);

/// Between two attempts to reach managers none of which answers.
const PAUSE: Duration = Duration::from_millis(500);

/// After everything has failed, before all begins anew.
const AGAIN: Duration = Duration::from_secs(3);

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// As it should.
    Done,
    /// The file is not there.
    Missing,
    /// The file is there already.
    Exists,
    /// Another error, or it took too long.
    Failed(String),
    /// More redirects than a client follows.
    Loop,
}

/// What an operation does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Sends its request there after a pause, and gives up waiting for the answer after a time.
    Send {
        /// Which host.
        to: usize,
        /// After this pause.
        after: Duration,
        /// For so long.
        patience: Duration,
    },
    /// Waits on for what it has asked.
    Stay {
        /// For so long.
        patience: Duration,
    },
    /// It is over.
    End(End),
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its number.
    pub number: u32,
    /// The client whose operation it is: by default one that has no other.
    pub client: usize,
    /// What is wanted.
    pub wish: Wish,
    /// Of what.
    pub path: Name,
    /// When it began.
    pub began: Duration,
    /// When it is given up.
    pub until: Duration,
    /// Beside which host the client is, when the network is split.
    pub near: usize,
    /// Number of the request under way.
    pub attempt: u32,
    /// Where it is now.
    pub at: usize,
    /// When the client takes its connection for broken.
    pub patience: Duration,
    /// When a manager sent it somewhere last.
    pub decided: Duration,
    /// Requests sent.
    pub requests: u32,
    /// How often it began anew after all had failed.
    pub restarts: u32,
    /// Waits it was told, in all.
    pub waited: Duration,
    /// When and how it ended.
    pub end: Option<(Duration, End)>,
    /// How long it takes to reach the first place that a manager sends it to.
    pub slow: Duration,
    /// How long it takes to reach any place that it is sent to.
    pub distance: Duration,
    managers: Vec<usize>,
    root: usize,
    tried: Vec<usize>,
    reason: Reason,
    redirects: u32,
    returns: u32,
}

impl Operation {
    /// A client's operation that begins at the first of these managers.
    pub fn new(number: u32, wish: Wish, path: Name, managers: Vec<usize>, near: usize) -> Self {
        Self {
            number,
            client: number as usize,
            wish,
            path,
            began: Duration::ZERO,
            until: Duration::MAX,
            near,
            attempt: 0,
            at: managers.first().copied().unwrap_or_default(),
            patience: Duration::MAX,
            decided: Duration::ZERO,
            requests: 0,
            restarts: 0,
            waited: Duration::ZERO,
            end: None,
            slow: Duration::ZERO,
            distance: Duration::ZERO,
            managers,
            root: 0,
            tried: Vec::new(),
            reason: Reason::Missing,
            redirects: 0,
            returns: 0,
        }
    }

    /// The manager it turns to now.
    pub fn manager(&self) -> usize {
        self.managers.get(self.root % self.managers.len().max(1)).copied().unwrap_or_default()
    }

    /// Whether it is at a manager.
    pub fn at_root(&self) -> bool {
        self.managers.contains(&self.at)
    }

    /// Where it was in vain.
    pub fn tried(&self) -> &[usize] {
        &self.tried
    }

    /// The request as the host it is sent to gets it.
    pub fn request(&self) -> Request {
        let tried: Vec<String> = self.tried.iter().map(|host| Host::name(*host)).collect();
        Request {
            operation: self.number,
            attempt: self.attempt,
            client: self.client,
            wish: self.wish.clone(),
            path: self.path.clone(),
            tried: tried.join(","),
            reason: self.reason,
        }
    }

    /// Begins, or begins again.
    pub fn first(&self) -> Step {
        self.send(self.manager(), Duration::ZERO)
    }

    fn send(&self, to: usize, after: Duration) -> Step {
        Step::Send { to, after, patience: PATIENCE }
    }

    /// What comes after this answer.
    pub fn told(&mut self, told: Told, now: Duration, lot: &mut Lot) -> Step {
        if now >= self.until {
            return Step::End(End::Failed(format!("gave up, last told {told:?} by {}", self.at)));
        }
        match told {
            Told::Redirect(to) => {
                self.redirects += 1;
                if self.redirects > REDIRECTS_MAX {
                    return Step::End(End::Loop);
                }
                let arrives = !self.managers.contains(&to);
                let after = if arrives { std::mem::take(&mut self.slow) } else { Duration::ZERO };
                self.send(to, after.max(self.distance))
            }
            Told::Wait(time) => {
                // Real clients count from the first request; a wait does not make a loop.
                self.waited += time;
                self.send(self.at, time + lot.time(Duration::from_millis(50)))
            }
            Told::Later => Step::Stay { patience: PATIENCE_LATER },
            Told::Done | Told::Listed(_) => Step::End(End::Done),
            Told::Lost if self.at_root() => {
                self.root += 1;
                (self.redirects, self.returns) = (0, 0);
                self.tried.clear();
                self.send(self.manager(), PAUSE + lot.time(PAUSE))
            }
            Told::Lost => self.go_back(Reason::Server),
            Told::Missing if !self.at_root() => self.go_back(Reason::Missing),
            Told::Failed(_) if !self.at_root() => self.go_back(Reason::Server),
            Told::Missing => Step::End(End::Missing),
            Told::Exists => Step::End(End::Exists),
            // It failed everywhere: whoever wants the file tries again.
            Told::Failed(_) if self.reason == Reason::Server && !self.tried.is_empty() => {
                (self.redirects, self.returns) = (0, 0);
                self.tried.clear();
                self.restarts += 1;
                self.send(self.manager(), AGAIN)
            }
            Told::Failed(code) => Step::End(End::Failed(format!("{code:?}"))),
        }
    }

    /// Back to the manager, with the list of what was tried.
    fn go_back(&mut self, reason: Reason) -> Step {
        self.returns += 1;
        // A client counts the redirects since it began anew at the manager; what it tried it keeps in mind.
        self.redirects = 0;
        if self.returns > RETURNS_MAX {
            return Step::End(End::Loop);
        }
        // As real clients do, once more when it is there already.
        self.tried.push(self.at);
        self.reason = reason;
        self.send(self.manager(), Duration::ZERO)
    }
}
