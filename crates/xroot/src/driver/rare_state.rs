//! [`RareState`]: the parts of a session that are allocated on demand.

use super::flow::SessionFlow;
use super::monitoring::SessionMonitor;
use super::receipts::Receipts;
use crate::lazy::{Lazy, LazyTable};
use crate::login_waits::LoginWaits;
use crate::registry::SessionHome;
use session::{CallId, RefusedTime};
use std::collections::VecDeque;
use vfs::{DeferredReply, Operation};
use wire::xroot::header::StreamId;

/// State that few sessions have at any time.
#[derive(Default)]
pub(super) struct RareState {
    /// Writes whose payload has not been written completely.
    pub(super) receipts: Receipts,
    /// Pages of listings that wait for room in the output.
    pub(super) parked: VecDeque<(CallId, Operation)>,
    /// Replies to send at the end of this session.
    pub(super) waiting_for_end: Vec<DeferredReply>,
    /// The session that this connection joins.
    pub(super) join: Option<(StreamId, SessionHome)>,
    /// The control connection switches to TLS.
    pub(super) starts_tls: bool,
    pub(super) login: LoginWaits,
    /// The time for which the request at the front of the input was not taken.
    pub(super) refused: RefusedTime,
    /// Records of detailed monitoring.
    pub(super) monitor: Option<Box<SessionMonitor>>,
    /// The flow of data that is reported.
    pub(super) flow: Option<Box<SessionFlow>>,
}

impl LazyTable for RareState {
    const EMPTY: &'static Self = &Self {
        receipts: Receipts::NONE,
        parked: VecDeque::new(),
        waiting_for_end: Vec::new(),
        join: None,
        starts_tls: false,
        login: LoginWaits::NONE,
        refused: RefusedTime::NONE,
        monitor: None,
        flow: None,
    };

    fn is_empty(&self) -> bool {
        self.receipts.is_empty()
            && self.parked.is_empty()
            && self.waiting_for_end.is_empty()
            && self.join.is_none()
            && !self.starts_tls
            && self.login.is_over()
            && !self.refused.is_present()
            && self.monitor.is_none()
            && self.flow.is_none()
    }
}

impl Lazy<RareState> {
    /// Returns the records of the session, if there are any. It never allocates.
    pub(super) fn monitor_mut(&mut self) -> Option<&mut SessionMonitor> {
        match self.monitor.is_some() {
            true => self.monitor.as_deref_mut(),
            false => None,
        }
    }

    /// Returns the flow of the session, if it may be reported. It never allocates.
    pub(super) fn flow_mut(&mut self) -> Option<&mut SessionFlow> {
        match self.flow.is_some() {
            true => self.flow.as_deref_mut(),
            false => None,
        }
    }

    /// Records the end of the session and of its open files.
    pub(super) fn end_monitor(&mut self) {
        if self.monitor.is_some() {
            self.monitor = None;
        }
    }
}
