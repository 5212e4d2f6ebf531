//! The end of a session and its connections: by the client, by timeouts, by a panic.
//!
//! All ways are in one file because each must release the same files, buffers and charges.

use super::context::SessionContext;
use super::timeouts::ConnectionTimeouts;
use super::{SessionDriver, session_log};
use crate::connections::{CloseState, LinkState};
use crate::hub::{LoopTime, TICK};
use base::{ErrorKind, Size};
use session::{CallId, DriverTask, PathId};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use vfs::{Answer, DeferredReply, Operation};

impl SessionDriver {
    /// Ends the session after a panic and closes its connections immediately.
    pub(crate) fn break_off(this: &Rc<RefCell<Self>>) {
        let mut driver = this.borrow_mut();
        driver.context.hub.stats.panics.add(1);
        (driver.broken, driver.is_running) = (true, false);
        tracing::error!(client = %driver.context.session.caller().identity, "a request panicked; closing its connection");
        let ended = catch_unwind(AssertUnwindSafe(|| {
            driver.context.session.end();
            driver.run(DriverTask::Nothing);
        }));
        if ended.is_err() {
            tracing::error!("cannot end a session cleanly after a panic: a second panic occurred");
        }
        // A reply may be incomplete, and so may the state from which it was made.
        driver.transfers.clear();
        driver.rare.receipts.clear();
        // Pools may still run these jobs.
        driver.context.jobs.orphan_all();
        driver.rare.parked.clear();
        driver.context.links.forget_work();
        driver.close_links(CloseState::Now);
    }

    /// Closes all connections.
    pub(crate) fn close_links(&mut self, when: CloseState) {
        for link in self.context.links.iter_mut() {
            link.close(when);
        }
    }

    /// Ends the session. The reply is sent after its files have been released.
    pub(crate) fn terminate(this: &Rc<RefCell<Self>>, reply: DeferredReply) {
        this.borrow_mut().rare.waiting_for_end.push(reply);
        Self::abort(this);
    }

    /// Ends the session immediately.
    pub(crate) fn abort(this: &Rc<RefCell<Self>>) {
        Self::guarded(this, |driver| {
            driver.context.session.end();
            driver.run(DriverTask::Nothing);
            driver.drop_output();
            driver.close_links(CloseState::Now);
            // At the end of the server its last packets are sent now: operations in flight may take longer.
            driver.rare.end_monitor();
        });
    }

    /// Checks the time limits of a session. Ends it if the login or idle timeout has passed.
    pub(crate) fn check_time(this: &Rc<RefCell<Self>>, now: LoopTime, tick: u32) {
        let late = {
            let driver = this.borrow();
            let config = &driver.context.hub.shared.config;
            let greets =
                !driver.context.session.is_active() && driver.rare.login.is_late(driver.born, now, config);
            // The last arrival was between its tick and the next one.
            let silence = TICK * tick.saturating_sub(driver.active).saturating_sub(1);
            let silent = silence > Duration::ZERO
                && config.idle.is_some_and(|most| silence >= most)
                && driver.is_quiet();
            !driver.context.session.is_ending() && (greets || silent)
        };
        if late {
            return Self::abort(this);
        }
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let mut driver = this.borrow_mut();
            driver.timeouts().refuse_unannounced();
            driver.login().check_refusal(tick);
            driver.timeouts().wake_overdue(tick);
            if driver.timeouts().close_overdue(tick) {
                driver.drop_output_of(|link| link.closing == CloseState::Now);
                driver.run(DriverTask::Nothing);
            }
            if driver.active < tick {
                driver.shrink();
            }
        }));
        if checked.is_err() {
            Self::break_off(this);
            this.borrow().wake_all();
            Self::forget_if_finished(this);
        }
    }

    fn timeouts(&mut self) -> ConnectionTimeouts<'_> {
        ConnectionTimeouts::new(&mut self.context)
    }

    /// Ends the session because others need the memory that it holds.
    pub(crate) fn end_stalled(this: &Rc<RefCell<Self>>, seconds: u32) {
        {
            let context = &this.borrow().context;
            tracing::warn!(
                client = %context.session.caller().identity,
                "closing a connection: its client has sent and received nothing for {seconds} s, and others wait for the \
                 {} bytes of memory that it holds",
                context.links.account().used()
            );
        }
        Self::abort(this);
    }

    /// Frees memory that the session does not need while it is idle.
    fn shrink(&mut self) {
        self.context.session.shrink();
        self.context.jobs.shrink();
        self.transfers.shrink();
        self.rare.shrink();
    }

    /// Removes a lost connection.
    pub(crate) fn link_lost(this: &Rc<RefCell<Self>>, link: PathId) {
        Self::guarded(this, |driver| {
            if let Some(mut state) = driver.context.links.remove(link) {
                state.out.clear();
                for receipt in std::mem::take(&mut state.expected) {
                    let todo = driver.rare.receipts.lost(&mut driver.context, receipt);
                    driver.run_if_any(todo);
                }
                for transfer in std::mem::take(&mut state.transfers) {
                    driver.transfers.end(&mut driver.context, transfer);
                }
                state.shrink();
            }
            driver.context.session.unbind(link);
            if link == PathId::CONTROL {
                driver.context.session.end();
                driver.drop_output();
                driver.close_links(CloseState::Now);
                for (id, _) in driver.take_parked() {
                    // The listing has no reader, so the answer is dropped.
                    let answer = Answer::error(ErrorKind::Cancelled, "the connection was lost");
                    driver.context.session.answered(id, answer, &mut driver.context.links);
                }
            }
            driver.run(DriverTask::Nothing);
        });
    }

    /// Drops the output of all connections. Its receiver has disconnected, and a peer that reads
    /// nothing must not keep files open.
    fn drop_output(&mut self) {
        self.drop_output_of(|_| true);
    }

    /// Drops the output of selected connections.
    fn drop_output_of(&mut self, which: impl Fn(&LinkState) -> bool) {
        let mut transfers = Vec::new();
        for link in self.context.links.iter_mut().filter(|link| !link.is_idle() && which(link)) {
            link.out.clear();
            transfers.extend(std::mem::take(&mut link.transfers));
        }
        transfers.into_iter().for_each(|transfer| self.transfers.end(&mut self.context, transfer));
    }

    fn take_parked(&mut self) -> VecDeque<(CallId, Operation)> {
        if self.has_parked() { std::mem::take(&mut self.rare.parked) } else { VecDeque::new() }
    }

    pub(super) fn forget_if_finished(this: &Rc<RefCell<Self>>) {
        let mut driver = this.borrow_mut();
        let mut waiting = Vec::new();
        // After a panic the set of unanswered calls is unknown. Dropped calls release their files.
        // Their charges return early; they are at most those of the requests of one session.
        let settled = driver.broken || driver.context.session.is_finished();
        let gone = settled && driver.context.jobs.is_empty() && driver.context.links.is_empty();
        if gone {
            driver.context.hub.remove(driver.context.owner);
            let known = driver.context.hub.shared.registry.remove(driver.context.session.id());
            if known {
                driver.log_disconnect();
            }
            driver.rare.end_monitor();
            waiting = driver.take_waiting_for_end();
        }
        drop(driver);
        waiting.into_iter().for_each(|reply| reply.send(Answer::DONE));
    }

    /// Counts and logs the end of a session that had logged in. A connection that joined another session was
    /// never logged in itself.
    fn log_disconnect(&self) {
        let SessionContext { hub, session, .. } = &self.context;
        if !self.logged_in {
            return;
        }
        let age = hub.now().since(self.born);
        hub.stats.connected_seconds.add(age.as_secs());
        if hub.shared.config.log_disconnects {
            let identity = &session.caller().identity;
            session_log::log_disconnect(identity, age, Size(self.sent), Size(self.received));
        }
    }

    fn take_waiting_for_end(&mut self) -> Vec<DeferredReply> {
        if self.rare.waiting_for_end.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.rare.waiting_for_end)
    }
}
