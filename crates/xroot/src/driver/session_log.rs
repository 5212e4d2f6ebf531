//! Log lines about a session: its login, its failed requests, its end.

use super::SessionDriver;
use base::Error;
use vfs::Answer;

impl SessionDriver {
    pub(super) fn log_login(&mut self) {
        self.logged_in = true;
        if self.hub.shared.config.log_logins {
            let identity = &self.session.caller().identity;
            tracing::info!(
                application = identity.application(),
                release = identity.release(),
                "{identity} login"
            );
        }
    }

    /// Takes note of an answer that says no.
    pub(super) fn note(&self, answer: &Answer) {
        if let Answer::Error(error) = answer {
            self.note_failure(error);
        }
    }

    /// Takes note of a failed request.
    pub(crate) fn note_failure(&self, error: &Error) {
        self.hub.shared.failures.note(&self.session.caller().identity, error);
    }

    /// Says how long the session was, as `H:MM:SS`.
    pub(super) fn log_disconnect(&self) {
        // A connection that joined another session was never one of its own.
        if self.hub.shared.config.log_disconnects && self.logged_in {
            let seconds = self.hub.now().since(self.born).as_secs();
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let identity = &self.session.caller().identity;
            tracing::info!("{identity} disc {hours}:{minutes:02}:{seconds:02}");
        }
    }
}
