//! A model of real clients.
//!
//! Clients follow redirects and return from failed hosts with the list of tried ones. They wait as
//! requested, accept deferred answers, and use another manager when one is unreachable.
//!
//! The model is separate from the world, so that its steps depend only on the answers that it gets.

use std::time::Duration;

use cluster::RetryReason;

use crate::host_address::host_name;
use crate::messages::{ClientRequest, HostReply, Name, RequestedAction};
use crate::sim_rng::SimRng;

/// The number of redirects after which a client reports a loop, equal to that of real clients.
pub const REDIRECTS_MAX: u32 = 16;

/// The number of returns to the manager from failed hosts after which a client gives up.
pub const RETURNS_MAX: u32 = 40;

/// The timeout after which a client treats a silent connection as broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// The timeout for a deferred answer.
const PATIENCE_LATER: Duration = Duration::from_secs(40);

/// The pause between two attempts if no manager answers.
const PAUSE: Duration = Duration::from_millis(500);

/// The pause after all hosts have failed, before a new start.
const AGAIN: Duration = Duration::from_secs(3);

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientResult {
    /// Success.
    Done,
    /// The file does not exist.
    Missing,
    /// The file exists already.
    Exists,
    /// Another error, or it took too long.
    Failed(String),
    /// More redirects than the limit.
    Loop,
}

/// The next step of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientStep {
    /// Sends its request after a pause, and stops waiting for the answer after a timeout.
    Send {
        /// The host.
        to: usize,
        /// The pause.
        after: Duration,
        /// The timeout.
        patience: Duration,
    },
    /// Continues to wait for the answer.
    Stay {
        /// The timeout.
        patience: Duration,
    },
    /// Ends.
    End(ClientResult),
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct ClientOperation {
    /// Its number.
    pub number: u32,
    /// The client of the operation: by default one without other operations.
    pub client: usize,
    /// The operation.
    pub wish: RequestedAction,
    /// Its path.
    pub path: Name,
    /// The time of its start.
    pub began: Duration,
    /// Its deadline.
    pub until: Duration,
    /// The host near which the client is when the network is split.
    pub near: usize,
    /// The number of the current request.
    pub attempt: u32,
    /// The current host.
    pub at: usize,
    /// The time at which the client treats its connection as broken.
    pub patience: Duration,
    /// The time of the last redirect by a manager.
    pub decided: Duration,
    /// The number of requests.
    pub requests: u32,
    /// The number of new starts after all hosts had failed.
    pub restarts: u32,
    /// The sum of requested waits.
    pub waited: Duration,
    /// The time of its end and its result.
    pub end: Option<(Duration, ClientResult)>,
    /// The time to reach the first host that a manager redirects to.
    pub slow: Duration,
    /// The time to reach any redirect target.
    pub distance: Duration,
    managers: Vec<usize>,
    root: usize,
    tried: Vec<usize>,
    reason: RetryReason,
    redirects: u32,
    returns: u32,
}

impl ClientOperation {
    /// Creates an operation of a client that begins at the first of these managers.
    pub fn new(number: u32, wish: RequestedAction, path: Name, managers: Vec<usize>, near: usize) -> Self {
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
            reason: RetryReason::Missing,
            redirects: 0,
            returns: 0,
        }
    }

    /// Returns its current manager.
    pub fn manager(&self) -> usize {
        self.managers.get(self.root % self.managers.len().max(1)).copied().unwrap_or_default()
    }

    /// Reports whether it is at a manager.
    pub fn at_root(&self) -> bool {
        self.managers.contains(&self.at)
    }

    /// Reports whether it waits for the answer to this request.
    pub(crate) fn is_current(&self, attempt: u32) -> bool {
        self.attempt == attempt && self.end.is_none()
    }

    /// Returns the tried hosts.
    pub fn tried(&self) -> &[usize] {
        &self.tried
    }

    /// Returns the request for the current host.
    pub fn request(&self) -> ClientRequest {
        let tried: Vec<String> = self.tried.iter().map(|host| host_name(*host)).collect();
        ClientRequest {
            operation: self.number,
            attempt: self.attempt,
            client: self.client,
            wish: self.wish.clone(),
            path: self.path.clone(),
            tried: tried.join(","),
            reason: self.reason,
        }
    }

    /// Returns the first step, also of a new start.
    pub fn first(&self) -> ClientStep {
        self.send(self.manager(), Duration::ZERO)
    }

    fn send(&self, to: usize, after: Duration) -> ClientStep {
        ClientStep::Send { to, after, patience: PATIENCE }
    }

    /// Returns the step after this answer.
    pub fn told(&mut self, told: HostReply, now: Duration, rng: &mut SimRng) -> ClientStep {
        if now >= self.until {
            return ClientStep::End(ClientResult::Failed(format!(
                "gave up, last told {told:?} by {}",
                self.at
            )));
        }
        match told {
            HostReply::Redirect(to) => {
                self.redirects += 1;
                if self.redirects > REDIRECTS_MAX {
                    return ClientStep::End(ClientResult::Loop);
                }
                let arrives = !self.managers.contains(&to);
                let after = if arrives { std::mem::take(&mut self.slow) } else { Duration::ZERO };
                self.send(to, after.max(self.distance))
            }
            HostReply::Wait(time) => {
                // Real clients count from the first request; a wait is not part of a loop.
                self.waited += time;
                self.send(self.at, time + rng.time(Duration::from_millis(50)))
            }
            HostReply::Later => ClientStep::Stay { patience: PATIENCE_LATER },
            HostReply::Done | HostReply::Listed(_) => ClientStep::End(ClientResult::Done),
            HostReply::Lost if self.at_root() => {
                self.root += 1;
                (self.redirects, self.returns) = (0, 0);
                self.tried.clear();
                self.send(self.manager(), PAUSE + rng.time(PAUSE))
            }
            HostReply::Lost => self.go_back(RetryReason::Server),
            HostReply::Missing if !self.at_root() => self.go_back(RetryReason::Missing),
            HostReply::Failed(_) if !self.at_root() => self.go_back(RetryReason::Server),
            HostReply::Missing => ClientStep::End(ClientResult::Missing),
            HostReply::Exists => ClientStep::End(ClientResult::Exists),
            // All hosts failed: a client that needs the file retries.
            HostReply::Failed(_) if self.reason == RetryReason::Server && !self.tried.is_empty() => {
                (self.redirects, self.returns) = (0, 0);
                self.tried.clear();
                self.restarts += 1;
                self.send(self.manager(), AGAIN)
            }
            HostReply::Failed(code) => ClientStep::End(ClientResult::Failed(format!("{code:?}"))),
        }
    }

    /// Returns to the manager with the list of tried hosts.
    fn go_back(&mut self, reason: RetryReason) -> ClientStep {
        self.returns += 1;
        // A client counts redirects from its last start at the manager; tried hosts stay recorded.
        self.redirects = 0;
        if self.returns > RETURNS_MAX {
            return ClientStep::End(ClientResult::Loop);
        }
        // Real clients do so, too, even if the host is in the list already.
        self.tried.push(self.at);
        self.reason = reason;
        self.send(self.manager(), Duration::ZERO)
    }
}
