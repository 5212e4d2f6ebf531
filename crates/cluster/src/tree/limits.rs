//! Every time and count of the tree, by name, with its unit and where it comes from.
//!
//! "Real" nodes are those of XRootD. Their times stand here where ours must fit them; between our own nodes, which know
//! each other from the login, shorter ones apply.

use std::time::Duration;

/// Time between two pings of a parent to a child that is not ours: at most a third of what such a node bears, whatever
/// its own `cms.ping` of at least that is. Source: cms protocol 3, mutual monitoring.
pub const PING: Duration = Duration::from_secs(20);

/// Time between two pings of a parent to a child of our own.
pub const PING_OWN: Duration = Duration::from_secs(1);

/// Shortest ping interval a configuration may ask for.
pub const PING_MIN: Duration = Duration::from_secs(3);

/// Pings without a byte in return after which a link to or from a real node is closed.
pub const SILENT_PINGS_MAX: u32 = 3;

/// The same among our own nodes. One more, because their interval is shorter than a pause of a busy machine may be.
pub const SILENT_PINGS_OWN_MAX: u32 = 4;

/// What a node takes for its parent's ping interval until it is told: the default of `cms.ping`.
pub const PING_DEFAULT: Duration = Duration::from_secs(60);

/// How long the place of a lost child stays reserved for it: the default of `cms.delay drop` of a manager.
pub const DROP: Duration = Duration::from_secs(600);

/// The same in a supervisor, which frees the place at once: its children are sent elsewhere by the manager.
pub const DROP_SUPERVISOR: Duration = Duration::ZERO;

/// The same of a child that was lost before it said a word beyond its login: nothing shows that it ever lived. It does not
/// count among those that must be there for service either.
pub const DROP_UNHEARD: Duration = Duration::from_secs(30);

/// A child that does not serve any more, lost or suspended, is missed for as long as it served, but so long at least: among those
/// of which a part must be there. So logins that come and go hold up a cluster no longer than they lasted.
pub const MISSED: Duration = Duration::from_secs(30);

/// Of children that served for less than this, one for each address is missed at most.
pub const PROVEN: Duration = Duration::from_secs(60);

/// Logins held back at once because no cell has room. Each costs its connection and about 300 bytes.
pub const PARKED_MAX: usize = 131_072;

/// How long a login is held back before it starts anew. Real nodes wait one ping interval, 60 s by default.
pub const PARK: Duration = Duration::from_secs(45);

/// How often a node of our own is told that its login is still held back.
pub const PARKED_NOTICE: Duration = Duration::from_secs(1);

/// Without an arrival for this long the cluster counts as settled: reserved places are given to servers, and what is
/// not found counts as absent even without the configured number of nodes.
pub const SETTLE: Duration = Duration::from_secs(2);

/// After so long it counts as settled although somebody still comes: one that is refused again and again must not hold
/// back what others want to know.
pub const SETTLE_MAX: Duration = Duration::from_secs(10);

/// How long "no server has the file" is not said after the first start of a cluster: an `xrootd` whose `cmsd` was not yet there when it
/// began looks for it again after 10 s, and joins only then.
pub const FIRST_START: Duration = Duration::from_secs(15);

/// More arrivals than this at a manager mean that a tree is needed: free places at the root are for supervisors.
pub const FLAT_MAX: usize = crate::CELL_SLOTS;

/// How long a manager counts a place as taken for a node it has sent there and that was not reported yet.
pub const RESERVATION: Duration = Duration::from_secs(3);

/// How long a cell that turned a node away, unseen by its manager, is not named to others.
pub const FULL_PENALTY: Duration = Duration::from_secs(10);

/// How long a supervisor gathers changes of its cell before it reports them.
pub const REPORT: Duration = Duration::from_millis(50);

/// Supervisors below a manager, at any depth: what two levels of supervisors can be.
pub const CELLS_MAX: usize = crate::CELL_SLOTS + crate::CELL_SLOTS * crate::CELL_SLOTS;

/// A parent's question where a file is may be answered this late, after the parent was told that all answers are void: then
/// it has to be told once more.
pub const ANSWERED: Duration = Duration::from_secs(15);

/// Of the times that a child says that all it said is void, this many are followed at once ...
pub const RESET_BURST: u32 = 64;
/// ... and one more after each such pause. So the count of resets, 32 bits wide, is out of reach of one child for 6 years.
pub const RESET_PAUSE: Duration = Duration::from_millis(50);

/// Levels of nodes below a manager that it builds itself: supervisors, supervisors, servers. Room for 262,144 servers.
pub const LEVELS_MAX: u8 = 3;

/// How long two logins of one identity are weighed: if the link that came first is silent for this long, it is dead.
pub const CONTEST: Duration = Duration::from_secs(1);

/// Managers of one site under a meta manager: the one that is asked and those that stand in for it.
pub const ALTERNATES_MAX: usize = 8;

/// Addresses that are taken from a node's list of its own.
pub const INTERFACES_MAX: usize = 8;

/// Redirectors of other hosts that are logged in to one node. A newcomer beyond takes the place of the one that has been
/// silent for longest.
pub const REDIRECTORS_MAX: usize = 1024;

/// Redirectors logged in to one node from one host, as which an IPv6 network of 64 bits counts. Real managers take 64 in all.
pub const REDIRECTORS_PER_PEER_MAX: usize = 256;

/// Connections at once that have not logged in yet; those beyond are closed.
pub const LOGINS_MAX: usize = 8192;

/// Connections at once from one host that have not logged in yet; those beyond are closed.
pub const LOGINS_PER_PEER_MAX: usize = 2048;

/// Within this time of a connection its whole login must have come. (That its first 8 bytes come within 1 s, as real
/// parents demand, is for the driver to see to.) Source: cms protocol 3, login.
pub const LOGIN: Duration = Duration::from_secs(5);

/// How often a node tells its parents about changed space of its children at most.
pub const TOTALS: Duration = Duration::from_secs(5);

/// Changes of the mean load of its children by more than this a node tells its parents unasked, in percent.
pub const LOAD_NEWS: u8 = 5;

/// A supervisor without a parent for this long sends its children to look for another one.
pub const ORPHANED: Duration = Duration::from_secs(15);

/// Managers a node connects to.
pub const ROOTS_MAX: usize = 16;

/// Nodes a `try` may name; what comes behind is dropped. Real lists hold at most 64 and the manager itself.
pub const CANDIDATES_MAX: usize = crate::CELL_SLOTS + ROOTS_MAX;

/// First and longest pause between two attempts to reach a parent; doubled each time, half of it drawn by lot. The longest
/// is what a manager that was restarted waits for its nodes.
pub const PAUSE_MIN: Duration = Duration::from_millis(50);
/// See [`PAUSE_MIN`].
pub const PAUSE_MAX: Duration = Duration::from_millis(800);

/// A place kept for this long shows that it was good: the next pause is the shortest again.
pub const STABLE: Duration = Duration::from_secs(5);

/// So long the place of a server that was just lost is nobody else's, whoever knocks: after a pause of the network or of the
/// parent itself all servers are lost at once, and come back in any order.
pub const RETURN: Duration = Duration::from_secs(5);

/// Pause after a manager refused a node by name (error EPERM): it will hardly change its mind soon.
pub const PAUSE_REFUSED: Duration = Duration::from_secs(60);

/// How long a connection may take to be made.
pub const CONNECT: Duration = Duration::from_secs(2);

/// How long a node waits for the first sign of life after its login; doubled with each attempt that failed so, because
/// a real manager under a storm of logins says nothing until it has time.
pub const ANSWER_MIN: Duration = Duration::from_secs(3);
/// See [`ANSWER_MIN`]. What real nodes wait by default.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Failed attempts after which a login says that the node has been trying for long. Source: cms protocol 3, 2.3.
pub const TRYING: u32 = 6;

/// Share of the children that must be there for service, in percent: the default of `cms.delay servers`.
pub const MINIMUM_PERCENT: u8 = 80;

const _: () = {
    assert!(PING_OWN.as_millis() < PING.as_millis() && PING_MIN.as_millis() < PING.as_millis());
    // A parked real node must hear of us before it gives up by itself.
    assert!(PARK.as_millis() + PING_MIN.as_millis() < ANSWER_MAX.as_millis());
    // A parked node of our own must not take the silence for a dead link.
    assert!(PARKED_NOTICE.as_millis() * 2 <= ANSWER_MIN.as_millis());
    // A reservation outlives the journey of the node and of the report about it.
    assert!(RESERVATION.as_millis() > CONNECT.as_millis() + REPORT.as_millis());
    assert!(PAUSE_MIN.as_millis() < PAUSE_MAX.as_millis() && ANSWER_MIN.as_millis() < ANSWER_MAX.as_millis());
};
