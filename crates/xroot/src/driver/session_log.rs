//! Log lines about a session: login, failed requests, disconnect.
//!
//! Warnings about failed requests are rate-limited by `failures`.

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

    /// Logs the duration of the session as `H:MM:SS`.
    pub(super) fn log_disconnect(&self) {
        // A connection that joined another session was never logged in itself.
        if self.hub.shared.config.log_disconnects && self.logged_in {
            let seconds = self.hub.now().since(self.born).as_secs();
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let identity = &self.session.caller().identity;
            tracing::info!("{identity} disc {hours}:{minutes:02}:{seconds:02}");
        }
    }
}
