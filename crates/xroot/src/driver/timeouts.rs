//! [`ConnectionTimeouts`]: time limits for data that a client sends late or does not take.
//!
//! The time limit of a login is in `login_waits`, that of an idle session in `ending`.

use super::context::SessionContext;
use crate::connections::{CloseState, LinkState};
use crate::input::Input;
use session::PathId;
use std::task::Waker;
use std::time::Instant;
use wire::xroot::limits::PATH_ID_MAX;

/// The time limits of all connections of a session.
pub(super) struct ConnectionTimeouts<'a> {
    context: &'a mut SessionContext,
}

impl<'a> ConnectionTimeouts<'a> {
    pub(super) fn new(context: &'a mut SessionContext) -> Self {
        Self { context }
    }

    /// Refuses data on a bound connection that was not announced within the `hail` time. Such data
    /// may arrive shortly before its announcement on another connection.
    pub(super) fn refuse_unannounced(self) {
        let SessionContext { hub, session, links, .. } = self.context;
        let patience = hub.shared.config.hail;
        let held_up = links.get(PathId::CONTROL).is_some_and(|control| control.held_up);
        for link in (1..=PATH_ID_MAX).map(PathId) {
            let Some(state) = links.get(link) else { continue };
            let Some((since, streamid)) = state.unannounced else { continue };
            if held_up {
                // The server may be delaying the request that announces the data, so the time
                // starts again.
                state.unannounced = Some((Instant::now(), streamid));
            } else if since.elapsed() > patience && state.closing == CloseState::No {
                state.close(CloseState::AfterOutput);
                if let Some(waker) = &state.waker {
                    waker.wake_by_ref();
                }
                session.refuse_unannounced(streamid, link, links);
            }
        }
    }

    /// Closes a connection whose client has exceeded the deadline for the rest of a request of
    /// `bytes` bytes.
    pub(super) fn check_argument(self, link: PathId, input: &Input, bytes: usize) {
        let SessionContext { hub, session, links, .. } = self.context;
        let (tick, most) = (hub.tick(), hub.shared.config.argument_seconds);
        let Some(state) = links.get(link) else { return };
        if input.is_empty() || state.closing != CloseState::No || state.input_lag.seconds(tick) <= most {
            return;
        }
        state.close(CloseState::AfterOutput);
        session.refuse_overdue(input.bytes(), bytes, link, links);
        let came = input.bytes().len();
        tracing::warn!(
            client = %session.caller().identity,
            "a request of {bytes} bytes did not arrive in time, {came} bytes came; closing its connection"
        );
    }

    /// Wakes connections whose argument has exceeded its deadline.
    pub(super) fn wake_overdue(self, tick: u32) {
        let most = self.context.hub.shared.config.argument_seconds;
        let overdue = |link: &&mut LinkState| {
            link.closing == CloseState::No && link.expected.is_empty() && link.input_lag.seconds(tick) > most
        };
        let links = self.context.links.iter_mut();
        links.filter(overdue).filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Closes connections that are about to close and whose clients do not take their output.
    /// Reports whether there were any.
    pub(super) fn close_overdue(self, tick: u32) -> bool {
        let most = self.context.hub.shared.config.stalled_seconds;
        let links = self.context.links.iter_mut();
        let is_overdue =
            |link: &&mut LinkState| link.closing == CloseState::AfterOutput && link.output_waits(tick) > most;
        let mut any = false;
        for link in links.filter(is_overdue) {
            link.close(CloseState::Now);
            link.waker.iter().for_each(Waker::wake_by_ref);
            any = true;
        }
        any
    }
}
