//! [`LoginSteps`]: the name of the client's host, the steps of an authentication, and delayed
//! refusals.
//!
//! A session has no clock, thread or name service, so its driver provides them. While one of them
//! is awaited, no input of the connection is taken.

use super::context::SessionContext;
use super::monitoring::SessionMonitor;
use super::rare_state::RareState;
use super::{SessionDriver, SessionHub, session_log};
use crate::front_end::{LoginPool, PeerNames};
use crate::lazy::Lazy;
use base::{Error, ErrorKind};
use net::LoopHandle;
use session::{AuthenticationResult, AuthenticationTask, DriverTask, HostName, PathId, RequestFront};
use std::time::SystemTime;

/// The login of a session, while one of its steps is executed.
pub(super) struct LoginSteps<'a> {
    pub(super) context: &'a mut SessionContext,
    /// Owns the state of a login that waits.
    pub(super) rare: &'a mut Lazy<RareState>,
    /// Set when the login has succeeded.
    pub(super) logged_in: &'a mut bool,
}

impl LoginSteps<'_> {
    /// Reports whether the next request must wait for the name of the client's host. Starts its
    /// look-up.
    pub(super) fn awaits_peer_host(&mut self, front: &RequestFront) -> bool {
        if self.rare.login.peer_host {
            return true;
        }
        if !self.context.session.needs_peer_host(front) {
            return false;
        }
        let address = self.context.peer_address();
        let (Some(PeerNames(names)), Some(address)) = (&self.context.hub.shared.config.peer_names, address)
        else {
            self.context.session.set_peer_host(HostName::Unknown);
            return false;
        };
        let (looked_up, hub, owner) = (names(address), self.context.hub.clone(), self.context.owner);
        self.rare.login.peer_host = true;
        tokio::task::spawn_local(async move {
            let name = looked_up.await;
            if let Some(driver) = hub.find(owner) {
                SessionDriver::guarded(&driver, |driver| driver.login().take_peer_host(name));
            }
        });
        true
    }

    fn take_peer_host(&mut self, name: HostName) {
        self.rare.login.peer_host = false;
        self.context.session.set_peer_host(name);
    }

    /// Records the transition of the session that a request or the step of an authentication has
    /// caused.
    pub(super) fn note_transition(&mut self, was_active: bool) {
        let SessionContext { hub, session, .. } = &*self.context;
        if !was_active && session.is_active() {
            self.rare.login.since = None;
            hub.stats.logins.add(1);
            hub.stats.authenticated.add(u64::from(session.is_authenticated()));
            hub.shared.registry.logged_in(session.id(), session.caller());
            *self.logged_in = true;
            session_log::log_login(session.caller(), hub.shared.config.log_logins);
            if let Some(monitor) = SessionMonitor::begin(hub, session.caller()) {
                self.rare.monitor = Some(monitor);
            }
        } else if session.is_authenticating() && self.rare.login.since.is_none() {
            self.rare.login.since = Some(hub.now());
        }
    }

    /// Executes a step of an authentication, or passes it to the pool.
    pub(super) fn authenticate(&mut self, task: AuthenticationTask) -> DriverTask {
        if !task.is_expensive() {
            return self.take_step(task.run(SystemTime::now()));
        }
        let (Some(home), Some(LoginPool(pool))) = (self.home(), &self.context.hub.shared.config.login_pool)
        else {
            return self.context.session.refuse_step("there is no thread for it", &mut self.context.links);
        };
        let host = task.owner();
        let take_result = self.on_loop(home, |login, result| login.take_step(result));
        let run = move || take_result(task.run(SystemTime::now()));
        if pool(host, Box::new(run)) {
            return DriverTask::Nothing;
        }
        let SessionContext { session, links, .. } = &mut *self.context;
        session.refuse_step("too many authentications wait for a thread", links)
    }

    /// Returns a function for other threads, which passes a value to the login on the loop of the
    /// session.
    fn on_loop<T: Send + 'static>(
        &self,
        home: LoopHandle,
        take: fn(&mut LoginSteps<'_>, T) -> DriverTask,
    ) -> impl FnOnce(T) + Send + 'static {
        let (shared, owner) = (self.context.hub.shared.clone(), self.context.owner);
        move |value| {
            home.run(move || {
                if let Some(driver) = SessionHub::of(&shared).find(owner) {
                    SessionDriver::guarded(&driver, |driver| {
                        let todo = take(&mut driver.login(), value);
                        driver.run(todo);
                    });
                }
            });
        }
    }

    /// Keeps a step that depends on other logins until it can be executed. The time limit of the login
    /// counts meanwhile.
    fn wait(&mut self, mut task: AuthenticationTask) -> DriverTask {
        let Some(home) = self.home() else {
            let SessionContext { session, links, .. } = &mut *self.context;
            return session.refuse_step("its session is not registered", links);
        };
        let resume = self.on_loop(home, |login, ()| match login.rare.login.later.take() {
            Some(task) => login.authenticate(task),
            None => DriverTask::Nothing,
        });
        task.wake_when_ready(Box::new(move || resume(())));
        self.rare.login.later = Some(task);
        DriverTask::Nothing
    }

    fn home(&self) -> Option<LoopHandle> {
        self.context.hub.shared.registry.find(self.context.session.id()).map(|entry| entry.home)
    }

    fn take_step(&mut self, result: AuthenticationResult) -> DriverTask {
        let result = match result.into_later() {
            Ok(task) => return self.wait(task),
            Err(result) => result,
        };
        let was_active = self.context.session.is_active();
        tracing::debug!(target: "auth", "{}: {result:?}", self.context.session.caller().identity);
        let todo = self.context.session.authenticated(result, &mut self.context.links);
        self.note_transition(was_active);
        todo
    }

    /// Logs a refusal, and delays it if required.
    pub(super) fn refuse(&mut self, reason: String, delay_seconds: u32) {
        self.context.hub.stats.refused_logins.add(1);
        self.context.note_failure(&Error::new(ErrorKind::AuthFailed, reason));
        if delay_seconds > 0 {
            self.rare.login.refusal_due = Some(self.context.hub.tick().saturating_add(delay_seconds));
        }
    }

    /// Sends a refusal whose delay has ended.
    pub(super) fn check_refusal(&mut self, tick: u32) {
        if self.rare.login.refusal_due.is_none_or(|due| tick < due) {
            return;
        }
        self.rare.login.refusal_due = None;
        self.context.session.send_delayed_refusal(&mut self.context.links);
        if let Some(waker) = self.context.links.get(PathId::CONTROL).and_then(|link| link.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }
}
