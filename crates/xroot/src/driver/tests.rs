//! Tests of the memory that an idle session uses, because a server has many idle sessions.

use super::*;

/// Asserts the sizes for each of 10,000 idle connections. The target is below 1 KiB in total. That
/// includes a task, the registration of its socket, the identity of the client, and entries in two
/// tables.
#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<RefCell<SessionDriver>>() <= 208, "{}", size_of::<RefCell<SessionDriver>>());
    assert!(size_of::<Session>() <= 72, "{}", size_of::<Session>());
    assert!(size_of::<vfs::Caller>() <= 80, "{}", size_of::<vfs::Caller>());
    assert!(size_of::<(SessionId, SessionHome)>() <= 40, "{}", size_of::<(SessionId, SessionHome)>());
}
