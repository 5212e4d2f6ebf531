//! Session state that the turn of one of its connections reads and changes.
//!
//! It is part of [`SessionDriver`]; `connection` calls it, so that the task of a connection does
//! not know the tables of its session.

use super::SessionDriver;
use crate::connections::CloseState;
use session::PathId;
use std::task::Waker;
use std::time::Instant;
use wire::xroot::limits::PATH_ID_MAX;

impl SessionDriver {
    /// Stores the waker of the connection's task. Returns `false` if the connection was removed.
    pub(crate) fn begin_turn(&mut self, link: PathId, waker: &Waker) -> bool {
        let Some(state) = self.links.get(link) else { return false };
        match &mut state.waker {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
        self.hub.stats.turns.add(1);
        if link == PathId::CONTROL {
            self.links.account().set_waker(waker);
            self.retry_memory();
        }
        true
    }

    /// Refuses data on a bound connection that was not announced within the `hail` time. Such data
    /// may arrive shortly before its announcement on another connection.
    pub(crate) fn check_bound(&mut self) {
        let patience = self.hub.shared.config.hail;
        let held_up = self.links.get(PathId::CONTROL).is_some_and(|control| control.held_up);
        for link in (1..=PATH_ID_MAX).map(PathId) {
            let Some(state) = self.links.get(link) else { continue };
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
                self.session.refuse_unannounced(streamid, link, &mut self.links);
            }
        }
    }

    /// Counts bytes that have left.
    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.hub.stats.bytes_out.add(bytes);
        self.sent += bytes;
    }

    pub(crate) fn arrived(&mut self, link: PathId, bytes: usize) {
        let tick = self.hub.tick();
        self.hub.stats.bytes_in.add(bytes as u64);
        self.received += bytes as u64;
        self.active = tick;
        self.links.get(link).into_iter().for_each(|state| state.input_lag.credit(bytes, tick));
    }

    /// Reports whether announced data is expected on the connection and may be received now.
    pub(crate) fn awaits_payload(&mut self, link: PathId) -> bool {
        let expected = self.links.get(link).and_then(|state| state.expected.front().copied());
        expected.is_some_and(|key| self.rare.receipts.get(key).is_some_and(|receipt| !receipt.is_held()))
    }

    /// Reports whether sent output may have made room for further work of this connection.
    pub(crate) fn has_further_work(&mut self, link: PathId) -> bool {
        let Some(state) = self.links.get(link) else { return false };
        let ready = state.transfers.iter().any(|&key| self.transfers.get(key).is_some_and(|t| !t.waiting));
        ready || (link == PathId::CONTROL && self.has_parked())
    }
}
