//! Timeouts of the resolver, and limits of the work that one call does.

use std::time::Duration;

use crate::tree::limits::{PING_OWN, SILENT_PINGS_OWN_MAX};

/// The query timeout of a child that supports NOT_HERE replies, as a multiple of
/// [`ResolveSettings::silence`]. The child may have real daemons below it, and has to wait for
/// their timeout itself.
pub(super) const PATIENCE: u32 = 2;
/// The time for which a query is extended to children that join meanwhile, as a multiple of
/// [`ResolveSettings::silence`] from the start of the query.
pub(super) const CARRIED_ON: u32 = 3;

/// The maximum number of expired queries that one [`super::LocationResolver::tick`] ends.
pub(super) const QUERIES_AT_ONCE: usize = 64;

/// The time for which a lost child is expected to reconnect. Meanwhile no file that it may have is
/// reported as missing or created. The slot itself is kept for longer.
pub const EXPECTED_BACK: Duration = Duration::from_secs(30);

/// The time within which all managers have received the report of a new child that it is connected
/// to all of them, and each knows the leases that another one has granted until then. Files that
/// this child would get wait meanwhile. A manager without the report has lost the child by then,
/// and delays new files.
pub(super) const ANNOUNCED: Duration = Duration::from_secs(5);

const _: () = assert!(
    ANNOUNCED.as_millis() > PING_OWN.as_millis() * SILENT_PINGS_OWN_MAX as u128,
    "longer than the silence of a lost connection"
);

/// The time within which a child that was redirected to another cell has its place there. For the
/// same time clients at a supervisor wait for a lost child; without any child it redirects them
/// back then.
pub(super) const SEATED_WITHIN: Duration = Duration::from_secs(5);

/// The default maximum time for which a request is held.
pub const HOLD: Duration = Duration::from_secs(30);

/// The maximum number of held requests that one [`super::LocationResolver::tick`] judges (batch).
/// The next tick is due at once while there are more, so that other messages and requests are
/// handled in between.
pub(super) const REVIEWS_AT_ONCE: usize = 64;

/// The maximum number of requests waiting for one query that are judged in one batch.
pub(super) const WAITERS_AT_ONCE: usize = 64;

/// The number of steps after which a call starts no further work.
pub(super) const STEPS_AT_ONCE: u64 = 256;

/// The maximum number of waiting requests and queries that one call looks at. A call handles one
/// message, one path of an inventory, one request or one tick. The limit depends neither on the
/// number of waiting requests nor on the number of open queries. The remaining work is due at once.
pub const STEPS_MAX: u64 = 4 * STEPS_AT_ONCE;

const _: () = assert!(2 * (STEPS_AT_ONCE + WAITERS_AT_ONCE as u64) + 2 * REVIEWS_AT_ONCE as u64 <= STEPS_MAX);
