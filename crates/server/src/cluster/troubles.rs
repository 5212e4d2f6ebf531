//! What goes wrong again and again: managers that do not take this node in, logins that are refused, places that do not
//! last. Each is said once, and while it goes on ever more seldom.

use super::line::{Line, Stage};
use cluster::tree::limits::{REDIRECTORS_MAX, REDIRECTORS_PER_PEER_MAX};
use cluster::tree::{Address, Membership, Node, RefusalReason};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Attempts in a row that lead nowhere before a manager is spoken of: one that is just being started is no trouble.
const ATTEMPTS: u32 = 3;

/// First and longest pause between two lines about one thing; four times as long each time.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// A place counts as one when it was kept for so long: a parent may greet a node and close the connection.
const LASTING: Duration = Duration::from_secs(1);

/// Things remembered at most: whoever comes from ever new addresses is not written down for ever.
const REMEMBERED_MAX: usize = 1000;

/// Why managers did not take this node in, and what was said of what.
#[derive(Default)]
pub(super) struct Troubles {
    reasons: HashMap<Address, String>,
    missed: Repeats<Address>,
    refused: Repeats<String>,
    /// Orders of redirectors, by host and operation.
    refused_orders: Repeats<(Option<IpAddr>, &'static str)>,
    place: Place,
}

/// What is said of this node's place.
#[derive(Clone, Copy, PartialEq, Default)]
enum Place {
    #[default]
    None,
    /// It has one since then.
    New(Duration),
    /// And that was said.
    Told,
}

/// What was said, and when it is to be said again.
struct Repeats<K>(HashMap<K, Said>);

#[derive(Clone, Copy)]
struct Said {
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
    /// Whether it is to be said now.
    fn due(&mut self, what: K, now: Duration) -> bool {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.retain(|_, said| said.again + said.pause > now);
        }
        let full = self.0.len() >= REMEMBERED_MAX;
        match self.0.get_mut(&what) {
            Some(said) if said.again > now => false,
            Some(said) => {
                let pause = if said.over { PAUSE_MIN } else { (said.pause * 4).min(PAUSE_MAX) };
                *said = Said { again: now + pause, pause, over: false };
                true
            }
            None if full => false,
            None => {
                self.0.insert(what, Said { again: now + PAUSE_MIN, pause: PAUSE_MIN, over: false });
                true
            }
        }
    }

    /// It is well again: whether that is to be said.
    fn over(&mut self, what: &K) -> bool {
        self.0.get_mut(what).is_some_and(|said| !std::mem::replace(&mut said.over, true))
    }
}

impl Troubles {
    /// A connection is none any more: remembers why a manager did not keep this node.
    pub(super) fn parted(&mut self, node: &Node, line: &mut Line, by_peer: bool) {
        let Some(manager) = line.goal.take() else { return };
        let roots = node.memberships().iter().flat_map(Membership::managers);
        if !roots.into_iter().any(|root| *root == manager) {
            return;
        }
        let why = line.failure.take().unwrap_or_else(|| {
            match (line.stage, line.is_made(), by_peer) {
                (Stage::Asking, false, _) => "it cannot be reached: no answer to the connection",
                (Stage::Asking, true, true) => {
                    "it ends the connection instead of answering a login: is that its cluster port? (1094 is for \
                     clients, 1213 for nodes, unless chosen otherwise)"
                }
                (Stage::Asking, true, false) => "it does not answer a login",
                _ => "it takes the node in and ends the connection at once: its log may say why",
            }
            .to_owned()
        });
        self.reasons.insert(manager, why);
    }

    /// The node has a place, or lost it.
    pub(super) fn attached(&mut self, attached: bool, now: Duration) {
        let place = if attached { Place::New(now) } else { Place::None };
        if std::mem::replace(&mut self.place, place) == Place::Told && !attached {
            tracing::warn!("cluster: this node has no parent any more and looks for one");
        }
    }

    /// When [`Self::complain`] has something to say about the place of this node.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.place {
            Place::New(since) => Some(since + LASTING),
            Place::None | Place::Told => None,
        }
    }

    /// Says where this node has its place, and of which managers it is not, if it is time for that.
    pub(super) fn complain(&mut self, node: &Node, now: Duration) {
        if self.next_deadline().is_some_and(|due| due <= now) {
            self.place = Place::Told;
            let parents: Vec<String> = node.parent_addresses().map(ToString::to_string).collect();
            tracing::info!("cluster: this node has a place below {}", parents.join(", "));
        }
        for membership in node.memberships() {
            for manager in membership.attached_roots() {
                if self.place == Place::Told && self.missed.over(manager) {
                    tracing::info!("cluster: the manager {manager} has taken this node in");
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

    /// The managers that a node looks for, each with what was in the way.
    pub(super) fn sought(&self, node: &Node) -> Vec<String> {
        let missed = node.memberships().iter().flat_map(Membership::managers_missed);
        missed
            .map(|(manager, _)| match self.reasons.get(manager) {
                Some(why) => format!("{manager}: {why}"),
                None => manager.to_string(),
            })
            .collect()
    }

    /// Says that two nodes have one id, unless that was said a moment ago.
    pub(super) fn tell_twins(&mut self, id: &str, host: &str, now: Duration) {
        if self.refused.due(format!("{host} {id}"), now) {
            tracing::error!(
                "cluster: a login from {host} was refused: another node with its id is connected ({id}). If its admin folder is \
                 a copy, remove .cluster/id from that; or name one of them otherwise (-n, or cms.vnid)"
            );
        }
    }

    /// Reports whether it is to be logged now that an order of a redirector at this address was refused.
    pub(super) fn is_refused_order_due(
        &mut self,
        ip: Option<IpAddr>,
        name: &'static str,
        now: Duration,
    ) -> bool {
        self.refused_orders.due((ip, name), now)
    }

    /// Logs that a redirector lost its place to another one, unless that was logged a moment ago.
    pub(super) fn log_replaced(&mut self, name: &str, by: &str, now: Duration) {
        if self.refused.due(format!("replaced {name}"), now) {
            tracing::warn!(
                "cluster: a redirector of {name} is disconnected, because {by} logs in as one and there are \
                 {REDIRECTORS_MAX} already, or {REDIRECTORS_PER_PEER_MAX} from one host"
            );
        }
    }

    /// Says that a login was refused, unless that was said a moment ago.
    pub(super) fn tell_refusal(&mut self, host: &str, reason: RefusalReason, now: Duration) {
        let why = match reason {
            RefusalReason::Role(error) => error.to_string(),
            RefusalReason::NoId => "it tells no id".to_owned(),
            RefusalReason::Banned => {
                "the list of nodes does not want it (cms.blacklist, cms.whitelist)".to_owned()
            }
            RefusalReason::Twin => "a node of the same id is connected".to_owned(),
            RefusalReason::Full => "there is no place".to_owned(),
            RefusalReason::Orphaned => "this node has no parent itself".to_owned(),
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
    fn what_lasts_is_said_ever_more_seldom() {
        let mut repeats = Repeats::default();
        let said: Vec<u64> =
            (0..20_000).filter(|second| repeats.due("it", Duration::from_secs(*second))).collect();
        assert_eq!(said, [0, 60, 300, 1260, 4860, 8460, 12060, 15660, 19260]);
    }

    #[test]
    fn what_is_well_again_is_said_once() {
        let mut repeats = Repeats::default();
        let at = Duration::from_secs;
        assert!(!repeats.over(&"it"));
        assert!(repeats.due("it", at(0)));
        assert!(repeats.over(&"it") && !repeats.over(&"it"));
        // It comes and goes.
        assert!(!repeats.due("it", at(30)) && !repeats.over(&"it"));
        assert!(repeats.due("it", at(60)) && repeats.over(&"it"));
        assert!(!repeats.due("it", at(61)) && repeats.due("it", at(120)), "the pause is the shortest again");
    }

    #[test]
    fn not_everybody_is_remembered() {
        let mut repeats = Repeats::default();
        let said = (0..5000).filter(|number| repeats.due(*number, Duration::ZERO)).count();
        assert_eq!((said, repeats.0.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        // After a while there is room again.
        assert!(repeats.due(4999, PAUSE_MIN * 2));
        assert_eq!(repeats.0.len(), 1);
    }
}
