//! Look-ups in a shared file system by this node itself (`cms.dfs lookup central`).
//!
//! All servers see the same files, and this node sees them too. So its driver looks, and no server
//! is queried. If the look has no result, or none in time, one server is queried as a fallback.

use std::time::Duration;

use super::checked_path::checked;
use super::queries::Settle;
use super::{LocationResolver, LookupOutcome, ResolverAction};
use crate::cache::CachedLocation;
use crate::slots::SlotMask;

impl LocationResolver {
    /// Records the result of [`ResolverAction::Look`]. A result without waiting requests is
    /// ignored.
    pub fn lookup_finished(
        &mut self,
        path: &[u8],
        sight: LookupOutcome,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        let Some(id) = self.queries.find(path) else { return };
        let Some(query) = self.queries.get_mut(id).filter(|query| query.looking) else { return };
        query.looking = false;
        let refresh = query.refresh;
        let (cache, bounces) = (&self.shared.cache, self.cell.bounces());
        let all = self.cell.paths().rights(path).unwrap_or_default().read;
        match sight {
            LookupOutcome::Here { pending } => {
                let note = |location: &mut CachedLocation| {
                    location.unasked -= all;
                    // An incomplete file belongs to the child that creates it.
                    if !pending || location.have.is_empty() {
                        all.iter().for_each(|slot| location.found(slot, pending));
                    }
                };
                self.holders(None, path, note, now, actions);
            }
            LookupOutcome::NotHere => {
                cache.update(path, now, bounces, |location| {
                    all.iter().for_each(|slot| location.absent(slot));
                });
                self.settle(id, Settle::Heard, now, actions);
            }
            LookupOutcome::Unknown => {
                query.blind = true;
                cache.update(path, now, bounces, |location| location.unasked = SlotMask::ALL);
                self.ask(path, refresh, false, now, actions);
                self.settle(id, Settle::Heard, now, actions);
            }
            LookupOutcome::Refused => {
                cache.update(path, now, bounces, |location| location.unasked = SlotMask::ALL);
                self.settle(id, Settle::GivenUp, now, actions);
            }
        }
    }
}
