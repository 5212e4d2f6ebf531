//! Rate limit for log lines about repeated problems: managers that do not accept this node, refused
//! logins, and attachments that do not last.
//!
//! Each problem is logged once, and with growing pauses while it lasts, so that a permanent problem
//! does not fill the log.

use super::connection::{ConnectionStage, NodeConnection};
use super::node_login::AuthenticationRefusal;
use cluster::tree::limits::{REDIRECTORS_MAX, REDIRECTORS_PER_PEER_MAX};
use cluster::tree::{Address, ClusterNode, Membership, RefusalReason};
use std::collections::HashMap;
use std::mem::Discriminant;
use std::net::IpAddr;
use std::time::Duration;

/// Consecutive failed attempts before a manager is logged, because a manager that is just starting
/// is not a problem.
const ATTEMPTS: u32 = 3;

/// The first and the longest pause between two log lines about one problem. Each pause is four
/// times the previous one.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The minimum duration of an attachment before it is logged, because a parent may accept a node
/// and close the connection immediately.
const LASTING: Duration = Duration::from_secs(1);

/// Maximum number of remembered problems, so that a peer with changing addresses cannot fill the
/// memory.
const REMEMBERED_MAX: usize = 1000;

/// The reasons why managers did not accept this node, and the log lines already written.
#[derive(Default)]
pub(super) struct ProblemLog {
    reasons: HashMap<Address, String>,
    missed: Repeats<Address>,
    refused: Repeats<String>,
    /// Refused orders of redirectors, by host and operation.
    refused_orders: Repeats<(Option<IpAddr>, &'static str)>,
    /// Hosts that may not join, and those whose messages are malformed.
    not_allowed: Repeats<IpAddr>,
    malformed: Repeats<Option<IpAddr>>,
    /// Peers that did not authenticate, by host and kind of reason. The reason itself is chosen by the
    /// peer.
    unauthenticated: Repeats<(Option<IpAddr>, Discriminant<AuthenticationRefusal>)>,
    open_parents: Repeats<Address>,
    place: AttachmentLog,
}

/// The log state of this node's attachment.
#[derive(Clone, Copy, PartialEq, Default)]
enum AttachmentLog {
    #[default]
    None,
    /// The node has a parent since this time.
    New(Duration),
    /// The attachment was logged.
    Told,
}

/// The problems that were logged, with the time of the next line about each.
struct Repeats<K>(HashMap<K, RepeatedProblem>);

#[derive(Clone, Copy)]
struct RepeatedProblem {
    again: Duration,
    pause: Duration,
    over: bool,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq> Repeats<K> {
    /// Reports whether the problem must be logged now.
    fn due(&mut self, what: K, now: Duration) -> bool {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.retain(|_, said| said.again + said.pause > now);
        }
        let full = self.0.len() >= REMEMBERED_MAX;
        match self.0.get_mut(&what) {
            Some(said) if said.again > now => false,
            Some(said) => {
                let pause = if said.over { PAUSE_MIN } else { (said.pause * 4).min(PAUSE_MAX) };
                *said = RepeatedProblem { again: now + pause, pause, over: false };
                true
            }
            None if full => false,
            None => {
                self.0
                    .insert(what, RepeatedProblem { again: now + PAUSE_MIN, pause: PAUSE_MIN, over: false });
                true
            }
        }
    }

    /// Marks the problem as solved. Reports whether the solution must be logged.
    fn over(&mut self, what: &K) -> bool {
        self.0.get_mut(what).is_some_and(|said| !std::mem::replace(&mut said.over, true))
    }
}

impl ProblemLog {
    /// Handles a closed connection: records the reason why a manager did not keep this node.
    pub(super) fn parted(&mut self, node: &ClusterNode, line: &mut NodeConnection, by_peer: bool) {
        let Some(manager) = line.parent_address.take() else { return };
        let roots = node.memberships().iter().flat_map(Membership::managers);
        if !roots.into_iter().any(|root| *root == manager) {
            return;
        }
        let why = line.failure.take().unwrap_or_else(|| {
            match (line.stage, line.is_made(), by_peer) {
                (ConnectionStage::Asking, false, _) => "it cannot be reached: no answer to the connection",
                (ConnectionStage::Asking, true, true) => {
                    "it ends the connection instead of answering a login: is that its cluster port? (1094 is for \
                     clients, 1213 for nodes, unless chosen otherwise)"
                }
                (ConnectionStage::Asking, true, false) => "it does not answer a login",
                _ => "it accepts the node and closes the connection immediately; its log may have the reason",
            }
            .to_owned()
        });
        self.reasons.insert(manager, why);
    }

    /// Records that the node has a parent or lost it.
    pub(super) fn attached(&mut self, attached: bool, now: Duration) {
        let place = if attached { AttachmentLog::New(now) } else { AttachmentLog::None };
        if std::mem::replace(&mut self.place, place) == AttachmentLog::Told && !attached {
            tracing::warn!("cluster: this node has lost its parent and searches for a new one");
        }
    }

    /// Returns the time at which [`Self::complain`] has to log the attachment of this node.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.place {
            AttachmentLog::New(since) => Some(since + LASTING),
            AttachmentLog::None | AttachmentLog::Told => None,
        }
    }

    /// Logs the parent of this node and the managers that have not accepted it, if that is due.
    pub(super) fn complain(&mut self, node: &ClusterNode, now: Duration) {
        if self.next_deadline().is_some_and(|due| due <= now) {
            self.place = AttachmentLog::Told;
            let parents: Vec<String> = node.parent_addresses().map(ToString::to_string).collect();
            tracing::info!("cluster: this node has a place below {}", parents.join(", "));
        }
        for membership in node.memberships() {
            for manager in membership.attached_roots() {
                if self.place == AttachmentLog::Told && self.missed.over(manager) {
                    tracing::info!("cluster: the manager {manager} has accepted this node");
                }
            }
            for (manager, failures) in membership.managers_missed() {
                let Some(why) = self.reasons.get(manager) else { continue };
                if failures >= ATTEMPTS && self.missed.due(manager.clone(), now) {
                    tracing::warn!(
                        "cluster: the manager {manager} does not take this node in, trying on: {why}"
                    );
                }
            }
        }
    }

    /// Returns the managers that a node searches, each with the reason of the last failure.
    pub(super) fn sought(&self, node: &ClusterNode) -> Vec<String> {
        let missed = node.memberships().iter().flat_map(Membership::managers_missed);
        missed
            .map(|(manager, _)| match self.reasons.get(manager) {
                Some(why) => format!("{manager}: {why}"),
                None => manager.to_string(),
            })
            .collect()
    }

    /// Logs that two nodes have one id, within the rate limit.
    pub(super) fn log_duplicate_id(&mut self, id: &str, host: &str, now: Duration) {
        if self.refused.due(format!("{host} {id}"), now) {
            tracing::error!(
                "cluster: a login from {host} was refused: another node with its id is connected ({id}). If its admin directory is \
                 a copy, remove .cluster/id from that; or name one of them otherwise (-n, or cms.vnid)"
            );
        }
    }

    /// Reports whether a refused order of a redirector at this address must be logged now.
    pub(super) fn is_refused_order_due(
        &mut self,
        ip: Option<IpAddr>,
        name: &'static str,
        now: Duration,
    ) -> bool {
        self.refused_orders.due((ip, name), now)
    }

    /// Logs that a host may not join, within the rate limit.
    pub(super) fn log_not_allowed(&mut self, ip: IpAddr, now: Duration) {
        if self.not_allowed.due(ip, now) {
            tracing::warn!("{ip} is not allowed to join the cluster (cms.allow)");
        }
    }

    /// Reports whether a malformed message of a peer must be logged now.
    pub(super) fn is_malformed_due(&mut self, ip: Option<IpAddr>, now: Duration) -> bool {
        self.malformed.due(ip, now)
    }

    /// Logs that a peer did not authenticate, within the rate limit.
    pub(super) fn log_unauthenticated(
        &mut self,
        ip: Option<IpAddr>,
        why: &AuthenticationRefusal,
        now: Duration,
    ) {
        if self.unauthenticated.due((ip, std::mem::discriminant(why)), now) {
            let host = ip.map_or_else(|| "a host".to_owned(), |ip| ip.to_string());
            tracing::warn!(
                "cluster: a login from {host} was refused, because it does not authenticate (scalla.clusterkey): {why}. \
                 If it belongs to this cluster, give it a copy of the key table; if its program cannot authenticate, name \
                 its host behind 'except'"
            );
        }
    }

    /// Logs that a parent accepts this node without authentication, within the rate limit.
    pub(super) fn log_open_parent(&mut self, parent: &Address, now: Duration) {
        if self.open_parents.due(parent.clone(), now) {
            tracing::warn!(
                "cluster: {parent} accepts this node without authentication, so foreign nodes can join there too: set \
                 scalla.clusterkey there, or name its host behind 'except' here"
            );
        }
    }

    /// Logs that a redirector lost its place to another one, within the rate limit.
    pub(super) fn log_replaced(&mut self, name: &str, by: &str, now: Duration) {
        if self.refused.due(format!("replaced {name}"), now) {
            tracing::warn!(
                "cluster: a redirector of {name} is disconnected, because {by} logs in as one and there are \
                 {REDIRECTORS_MAX} already, or {REDIRECTORS_PER_PEER_MAX} from one host"
            );
        }
    }

    /// Logs that a login was refused, within the rate limit.
    pub(super) fn log_refusal(&mut self, host: &str, reason: RefusalReason, now: Duration) {
        let why = match reason {
            RefusalReason::Role(error) => error.to_string(),
            RefusalReason::NoId => "its login has no id".to_owned(),
            RefusalReason::Banned => {
                "the list of nodes excludes it (cms.blacklist, cms.whitelist)".to_owned()
            }
            RefusalReason::Twin => "a node of the same id is connected".to_owned(),
            RefusalReason::Full => "there is no place".to_owned(),
            RefusalReason::Orphaned => "this node itself is without a parent".to_owned(),
        };
        if self.refused.due(format!("{host}: {why}"), now) {
            tracing::warn!("cluster: a login from {host} was refused: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_problem_is_logged_with_growing_pauses() {
        let mut repeats = Repeats::default();
        let said: Vec<u64> =
            (0..20_000).filter(|second| repeats.due("it", Duration::from_secs(*second))).collect();
        assert_eq!(said, [0, 60, 300, 1260, 4860, 8460, 12060, 15660, 19260]);
    }

    #[test]
    fn a_solved_problem_is_logged_once() {
        let mut repeats = Repeats::default();
        let at = Duration::from_secs;
        assert!(!repeats.over(&"it"));
        assert!(repeats.due("it", at(0)));
        assert!(repeats.over(&"it") && !repeats.over(&"it"));
        // The problem comes and goes (flapping).
        assert!(!repeats.due("it", at(30)) && !repeats.over(&"it"));
        assert!(repeats.due("it", at(60)) && repeats.over(&"it"));
        assert!(!repeats.due("it", at(61)) && repeats.due("it", at(120)), "the pause is the shortest again");
    }

    #[test]
    fn the_number_of_remembered_problems_is_limited() {
        let mut repeats = Repeats::default();
        let said = (0..5000).filter(|number| repeats.due(*number, Duration::ZERO)).count();
        assert_eq!((said, repeats.0.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        // After a while entries expire and there is space again.
        assert!(repeats.due(4999, PAUSE_MIN * 2));
        assert_eq!(repeats.0.len(), 1);
    }
}
