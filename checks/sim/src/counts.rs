//! What has happened in a world: what it cost, and which faults really befell it.

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Messages sent, but pings and pongs.
    pub messages: u64,
    /// Pings and pongs.
    pub pings: u64,
    /// Connections asked for.
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
    /// Messages under way that never arrived.
    pub lost: u64,
    /// Messages that took more than ten times as long as they should.
    pub late: u64,
    /// Messages that arrived after a younger one of another connection to the same host.
    pub overtaken: u64,
    /// Links that broke: both ends learn it.
    pub broken: u64,
    /// Links that fell silent: nobody learns it.
    pub silent: u64,
    /// Links that stood still for a while and then delivered everything.
    pub stalled: u64,
    /// Links that a split of the network cut.
    pub cut: u64,
    /// Nodes sent on or kept waiting because a cell was full.
    pub full: u64,
    /// Requests or answers of clients that were lost.
    pub unanswered: u64,
    /// Crashes of managers, supervisors, servers; and those of all these that were real nodes.
    pub crashed: [u64; 4],
    /// Crashes of which nobody is told.
    pub quietly: u64,
    /// Nodes that were started again.
    pub returned: u64,
    /// Hosts that stood still for a while, and those of them whose clocks did, too.
    pub still: [u64; 2],
    /// Disks that hung for a while.
    pub hung: u64,
    /// Servers and supervisors that were taken out of use by order.
    pub suspended: [u64; 2],
    /// Servers whose clients were to go elsewhere.
    pub drained: u64,
    /// Pairs of hosts that did not hear each other while others did.
    pub apart: u64,
    /// Managers that crashed while nodes waited there for a place.
    pub parked: u64,
}
