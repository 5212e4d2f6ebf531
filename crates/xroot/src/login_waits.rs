//! [`LoginWaits`]: the pending operations of the login of a session.

use crate::front_end::Config;
use crate::hub::LoopTime;
use session::AuthenticationTask;

/// What a login waits for.
#[derive(Default)]
pub(crate) struct LoginWaits {
    /// Set while the name of the client's host is looked up.
    pub(crate) peer_host: bool,
    /// Tick at which a delayed refusal is sent.
    pub(crate) refusal_due: Option<u32>,
    /// A step that depends on other logins.
    pub(crate) later: Option<AuthenticationTask>,
    /// Time of the login that waits for its authentication.
    pub(crate) since: Option<LoopTime>,
}

impl LoginWaits {
    pub(crate) const NONE: Self = Self { peer_host: false, refusal_due: None, later: None, since: None };

    pub(crate) fn is_over(&self) -> bool {
        !self.peer_host && self.refusal_due.is_none() && self.later.is_none() && self.since.is_none()
    }

    /// Reports whether the time for a login, or for its authentication, has passed. `born` is the
    /// start of the session.
    pub(crate) fn is_late(&self, born: LoopTime, now: LoopTime, config: &Config) -> bool {
        match self.since {
            Some(since) => now.since(since) > config.login_timeout,
            None => now.since(born) > config.hail,
        }
    }
}
