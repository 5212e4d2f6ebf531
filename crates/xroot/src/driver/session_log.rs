//! Log lines about a session: login, failed requests, disconnect.
//!
//! Warnings about failed requests are rate-limited by `failures`.

use super::SessionDriver;
use base::Size;

impl SessionDriver {
    pub(super) fn log_login(&mut self) {
        self.logged_in = true;
        if self.context.hub.shared.config.log_logins {
            let identity = &self.context.session.caller().identity;
            tracing::info!(
                application = identity.application(),
                release = identity.release(),
                "{identity} login{}",
                self.authenticated_as()
            );
        } else {
            tracing::debug!("{} login{}", self.context.session.caller().identity, self.authenticated_as());
        }
    }

    /// Returns ` as NAME by PROTOCOL` for a client that authenticated, otherwise nothing.
    fn authenticated_as(&self) -> String {
        let caller = self.context.session.caller();
        match caller.entity() {
            Some(entity) => {
                let name = entity.name.as_deref().map(|name| format!(" as {name}")).unwrap_or_default();
                format!("{name} by {}", entity.protocol)
            }
            None => String::new(),
        }
    }

    /// Logs the duration of the session and the bytes that it sent and received.
    pub(super) fn log_disconnect(&self) {
        // A connection that joined another session was never logged in itself.
        if self.context.hub.shared.config.log_disconnects && self.logged_in {
            let seconds = self.context.hub.now().since(self.born).as_secs();
            let identity = &self.context.session.caller().identity;
            let (sent, received) = (Size(self.sent), Size(self.received));
            tracing::info!("{identity} left after {}: {sent} sent, {received} received", duration(seconds));
        }
    }
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
