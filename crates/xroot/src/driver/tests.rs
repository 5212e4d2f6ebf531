//! Tests of what a session costs.

use super::*;

/// What each of ten thousand connections costs, those that do nothing too. Under 1 KiB in all is promised: with this go
/// a task, the watch on its socket, who the client is, and an entry in two tables.
#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<RefCell<SessionDriver>>() <= 200, "{}", size_of::<RefCell<SessionDriver>>());
    assert!(size_of::<Session>() <= 64, "{}", size_of::<Session>());
    assert!(size_of::<vfs::Caller>() <= 72, "{}", size_of::<vfs::Caller>());
    assert!(size_of::<(SessionId, Entry)>() <= 40, "{}", size_of::<(SessionId, Entry)>());
}
