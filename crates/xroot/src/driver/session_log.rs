//! Log lines about a session: login and disconnect. Those about failed requests are in `failures`.

use base::{Identity, Size};
use std::time::Duration;
use vfs::Caller;

/// Logs a login, at level info if it `is_logged`, otherwise at level debug.
pub(super) fn log_login(caller: &Caller, is_logged: bool) {
    let identity = &caller.identity;
    if is_logged {
        tracing::info!(
            application = identity.application(),
            release = identity.release(),
            "{identity} login{}",
            authenticated_as(caller)
        );
    } else {
        tracing::debug!("{identity} login{}", authenticated_as(caller));
    }
}

/// Returns ` as NAME by PROTOCOL` for a client that authenticated, otherwise nothing.
fn authenticated_as(caller: &Caller) -> String {
    match caller.entity() {
        Some(entity) => {
            let name = entity.name.as_deref().map(|name| format!(" as {name}")).unwrap_or_default();
            format!("{name} by {}", entity.protocol)
        }
        None => String::new(),
    }
}

/// Logs the duration of a session and the bytes that it sent and received.
pub(super) fn log_disconnect(identity: &Identity, age: Duration, sent: Size, received: Size) {
    tracing::info!("{identity} left after {}: {sent} sent, {received} received", duration(age.as_secs()));
}

/// A duration in the two largest units that it has: `7 s`, `2 min 5 s`, `3 h 20 min`.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let texts = [0, 59, 125, 3600, 93_784].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "2 min 5 s", "1 h 0 min", "26 h 3 min"]);
    }
}
