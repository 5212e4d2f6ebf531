//! Log lines about a session: login, failed requests, disconnect.
//!
//! Warnings about failed requests are rate-limited by `failures`.

use super::SessionDriver;
use base::{Error, Size};
use vfs::Answer;

impl SessionDriver {
    pub(super) fn log_login(&mut self) {
        self.logged_in = true;
        if self.hub.shared.config.log_logins {
            let identity = &self.session.caller().identity;
            tracing::info!(
                application = identity.application(),
                release = identity.release(),
                "{identity} login{}",
                self.authenticated_as()
            );
        } else {
            tracing::debug!("{} login{}", self.session.caller().identity, self.authenticated_as());
        }
    }

    /// Returns ` as NAME by PROTOCOL` for a client that authenticated, otherwise nothing.
    fn authenticated_as(&self) -> String {
        let caller = self.session.caller();
        match caller.entity() {
            Some(entity) => {
                let name = entity.name.as_deref().map(|name| format!(" as {name}")).unwrap_or_default();
                format!("{name} by {}", entity.protocol)
            }
            None => String::new(),
        }
    }

    /// Logs the error of an answer, if it is one.
    pub(super) fn note(&self, answer: &Answer) {
        if let Answer::Error(error) = answer {
            self.note_failure(error);
        }
    }

    /// Logs a failed request.
    pub(crate) fn note_failure(&self, error: &Error) {
        self.hub.shared.failures.note(&self.session.caller().identity, error);
    }

    /// Logs the duration of the session and the bytes that it sent and received.
    pub(super) fn log_disconnect(&self) {
        // A connection that joined another session was never logged in itself.
        if self.hub.shared.config.log_disconnects && self.logged_in {
            let seconds = self.hub.now().since(self.born).as_secs();
            let identity = &self.session.caller().identity;
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
