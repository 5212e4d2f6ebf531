//! Counts of a world: its cost, and the faults that occurred.
//!
//! The tables of `main` and the checks of `fault_counts` use them.

use cluster::tree::NodeMessage;

use crate::messages::SimMessage;

/// The counts so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Messages sent, without pings and pongs.
    pub messages: u64,
    /// Pings and pongs.
    pub pings: u64,
    /// Connections requested.
    pub connections: u64,
    /// Logins sent.
    pub logins: u64,
    /// `try` sent.
    pub tries: u64,
    /// Reports of cells.
    pub reports: u64,
    /// Links that broke, fell silent or stalled.
    pub faults: u64,
    /// Events processed.
    pub events: u64,
    /// Messages about files between nodes.
    pub files: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Messages in transit that never arrived.
    pub lost: u64,
    /// Messages that took more than ten times the normal time.
    pub late: u64,
    /// Messages that arrived after a younger one of another connection to the same host.
    pub overtaken: u64,
    /// Connections that broke: both ends are notified.
    pub broken: u64,
    /// Connections that fell silent: neither end is notified.
    pub silent: u64,
    /// Connections that stalled for a while and then delivered everything.
    pub stalled: u64,
    /// Connections cut by a split of the network.
    pub cut: u64,
    /// Nodes that were redirected or parked because a cell was full.
    pub full: u64,
    /// Requests or answers of clients that were lost.
    pub unanswered: u64,
    /// Crashes of managers, supervisors and servers; and those of real nodes among them.
    pub crashed: [u64; 4],
    /// Crashes without a notice to other nodes.
    pub quietly: u64,
    /// Nodes that were restarted.
    pub returned: u64,
    /// Hosts that stalled for a while, and those of them whose clocks stopped, too.
    pub still: [u64; 2],
    /// Disks that hung for a while.
    pub hung: u64,
    /// Servers and supervisors that were suspended by order.
    pub suspended: [u64; 2],
    /// Servers that were drained.
    pub drained: u64,
    /// Pairs of hosts that were separated from each other only.
    pub apart: u64,
    /// Managers that crashed while logins were parked there.
    pub parked: u64,
}

impl Counts {
    /// Counts a message that is sent.
    pub(crate) fn add_sent(&mut self, message: &SimMessage) {
        match message {
            SimMessage::Files(_) => self.files += 1,
            SimMessage::Tree(NodeMessage::Ping | NodeMessage::Pong) => self.pings += 1,
            SimMessage::Tree(_) => self.messages += 1,
        }
        match message {
            SimMessage::Tree(NodeMessage::Login(_)) => self.logins += 1,
            SimMessage::Tree(NodeMessage::Try { .. }) => self.tries += 1,
            SimMessage::Tree(NodeMessage::Occupancy(_)) => self.reports += 1,
            _ => {}
        }
    }
}
