//! Times and limits of the tree, with their units and sources.
//!
//! "Real" nodes are those of XRootD. Their times are listed where ours have to fit them. Shorter
//! times apply between our own nodes, which recognise each other at the login.

use std::time::Duration;

/// The interval between two pings of a parent to a child that is a real node. It is at most a third
/// of the time that such a node tolerates with any permitted `cms.ping`. Source: cms protocol 3,
/// mutual monitoring.
pub const PING: Duration = Duration::from_secs(20);

/// The interval between two pings of a parent to a child of our own.
pub const PING_OWN: Duration = Duration::from_secs(1);

/// The shortest ping interval that a configuration may set.
pub const PING_MIN: Duration = Duration::from_secs(3);

/// The number of pings without a received byte after which a connection to or from a real node is
/// closed.
pub const SILENT_PINGS_MAX: u32 = 3;

/// The same limit between our own nodes. It is one higher, because their interval may be shorter
/// than a pause of a busy machine.
pub const SILENT_PINGS_OWN_MAX: u32 = 4;

/// The parent's ping interval that a node assumes until it receives the real one: the default of
/// `cms.ping`.
pub const PING_DEFAULT: Duration = Duration::from_secs(60);

/// The time for which the place of a lost child is reserved: the default of `cms.delay drop` of a
/// manager.
pub const DROP: Duration = Duration::from_secs(600);

/// The same time in a supervisor, which frees the place at once, because the manager redirects its
/// children.
pub const DROP_SUPERVISOR: Duration = Duration::ZERO;

/// The same time for a child that was lost before it sent anything beyond its login, because
/// nothing proves that it worked. Such a child does not count towards the quorum either.
pub const DROP_UNHEARD: Duration = Duration::from_secs(30);

/// The minimum time for which a lost or suspended child counts towards the quorum. A child counts
/// for as long as it served, but at least for this time. So flapping logins delay a cluster for no
/// longer than they lasted.
pub const MISSED: Duration = Duration::from_secs(30);

/// The service time below which at most one missing child per address counts towards the quorum.
pub const PROVEN: Duration = Duration::from_secs(60);

/// The maximum number of logins held back because all cells are full. Each costs its connection and
/// about 300 bytes.
pub const PARKED_MAX: usize = 131_072;

/// The time for which a login is held back before it starts again. Real nodes wait one ping
/// interval, 60 s by default.
pub const PARK: Duration = Duration::from_secs(45);

/// The interval at which a node of our own is notified that its login is still held back.
pub const PARKED_NOTICE: Duration = Duration::from_secs(1);

/// The time without an arrival after which the cluster counts as settled. Then reserved places are
/// given to servers, and files that are not found count as absent even without the configured
/// number of nodes.
pub const SETTLE: Duration = Duration::from_secs(2);

/// The time after which the cluster counts as settled despite arrivals. Otherwise a node that is
/// refused repeatedly would delay the requests of all others.
pub const SETTLE_MAX: Duration = Duration::from_secs(10);

/// The time after the first start of a cluster during which a file is not reported as missing. An
/// `xrootd` that starts before its `cmsd` looks for it again after 10 s, and joins only then.
pub const FIRST_START: Duration = Duration::from_secs(15);

/// The time after which a node counts as known to all its managers, even if some have not accepted
/// it. Until then the others choose it for new files only if they have no other node.
pub const ESTABLISHED: Duration = Duration::from_secs(30);

/// The number of arrivals at a manager above which a tree is needed: free places at the root are
/// then reserved for supervisors.
pub const FLAT_MAX: usize = crate::CELL_SLOTS;

/// The time for which a manager counts a place as taken by a node that it has sent there and that
/// has not been reported yet.
pub const RESERVATION: Duration = Duration::from_secs(3);

/// The time for which a cell that rejected a node, without a report to its manager, is not offered
/// to other nodes.
pub const FULL_PENALTY: Duration = Duration::from_secs(10);

/// The time for which a supervisor collects changes of its cell into one report (batch).
pub const REPORT: Duration = Duration::from_millis(50);

/// The maximum number of supervisors below a manager, at any depth: two full levels.
pub const CELLS_MAX: usize = crate::CELL_SLOTS + crate::CELL_SLOTS * crate::CELL_SLOTS;

/// The time for which a parent's query may be answered late. If the parent was notified within it
/// that all answers are stale, it has to be notified once more.
pub const ANSWERED: Duration = Duration::from_secs(15);

/// The number of resets by one child that are followed at once (rate limit) ...
pub const RESET_BURST: u32 = 64;
/// ... and the pause for each further one. So the count of resets, 32 bits wide, is out of reach of
/// one child for 6 years.
pub const RESET_PAUSE: Duration = Duration::from_millis(50);

/// The number of levels of nodes below a manager that it builds itself: supervisors, supervisors,
/// servers. Room for 262,144 servers.
pub const LEVELS_MAX: u8 = 3;

/// The time for which two logins of one identity are compared. If the older connection stays silent
/// for this time, it is dead.
pub const CONTEST: Duration = Duration::from_secs(1);

/// The maximum number of managers of one site under a meta manager: the active one and its
/// alternates.
pub const ALTERNATES_MAX: usize = 8;

/// The number of addresses that are accepted from a node's list of its own.
pub const INTERFACES_MAX: usize = 8;

/// The maximum number of redirectors of other hosts that are logged in to one node. A further one
/// replaces the one that has been silent for longest (eviction).
pub const REDIRECTORS_MAX: usize = 1024;

/// The maximum number of redirectors logged in to one node from one host. An IPv6 network of 64
/// bits counts as one host. Real managers accept 64 in all.
pub const REDIRECTORS_PER_PEER_MAX: usize = 256;

/// The maximum number of connections without a login; further ones are closed.
pub const LOGINS_MAX: usize = 8192;

/// The maximum number of connections without a login from one host; further ones are closed.
pub const LOGINS_PER_PEER_MAX: usize = 2048;

/// The deadline for a complete login after the connection. (The driver enforces that its first 8
/// bytes arrive within 1 s, as real parents demand.) Source: cms protocol 3, login.
pub const LOGIN: Duration = Duration::from_secs(5);

/// The minimum interval between two reports of a node about the space of its children.
pub const TOTALS: Duration = Duration::from_secs(5);

/// The change of the mean load of its children, in percent, above which a node reports it to its
/// parents without a request.
pub const LOAD_NEWS: u8 = 5;

/// The time after which a supervisor without a parent sends its children to another one.
pub const ORPHANED: Duration = Duration::from_secs(15);

/// The maximum number of managers to which a node connects.
pub const ROOTS_MAX: usize = 16;

/// The maximum number of nodes in a `try`; further ones are dropped. Real lists hold at most 64 and
/// the manager itself.
pub const CANDIDATES_MAX: usize = crate::CELL_SLOTS + ROOTS_MAX;

/// The first pause between two connection attempts to a parent. The backoff doubles it each time up
/// to [`PAUSE_MAX`]; half of each pause is random.
pub const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause of the backoff. A restarted manager waits for its nodes for this time.
pub const PAUSE_MAX: Duration = Duration::from_millis(800);

/// The time after which a place counts as stable: the next backoff starts at the shortest pause
/// again.
pub const STABLE: Duration = Duration::from_secs(5);

/// The time for which the place of a lost server is not given to another one. After a pause of the
/// network or of the parent itself all servers are lost at once, and return in any order.
pub const RETURN: Duration = Duration::from_secs(5);

/// The pause after a manager refused a node by name (error EPERM), because the refusal is likely to
/// stay.
pub const PAUSE_REFUSED: Duration = Duration::from_secs(60);

/// The timeout for a connection attempt.
pub const CONNECT: Duration = Duration::from_secs(2);

/// The timeout for the first message after a login. It doubles with each timeout, because a real
/// manager under a storm of logins sends nothing until it has time.
pub const ANSWER_MIN: Duration = Duration::from_secs(3);
/// The upper limit of [`ANSWER_MIN`] after doubling; the default of real nodes.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The number of failed attempts after which a login carries the flag for long attempts. Source:
/// cms protocol 3, 2.3.
pub const TRYING: u32 = 6;

/// The percentage of the children that must be connected for service: the default of `cms.delay
/// servers`.
pub const MINIMUM_PERCENT: u8 = 80;

const _: () = {
    assert!(PING_OWN.as_millis() < PING.as_millis() && PING_MIN.as_millis() < PING.as_millis());
    // A parked real node must receive a message before it gives up by itself.
    assert!(PARK.as_millis() + PING_MIN.as_millis() < ANSWER_MAX.as_millis());
    // A parked node of our own must not treat the missing messages as a dead connection.
    assert!(PARKED_NOTICE.as_millis() * 2 <= ANSWER_MIN.as_millis());
    // A reservation outlives the move of the node and the report about it.
    assert!(RESERVATION.as_millis() > CONNECT.as_millis() + REPORT.as_millis());
    assert!(PAUSE_MIN.as_millis() < PAUSE_MAX.as_millis() && ANSWER_MIN.as_millis() < ANSWER_MAX.as_millis());
};
