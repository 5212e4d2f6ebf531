//! Where all servers see the same files, and this node sees them too (`cms.dfs lookup central`): its driver looks, and no
//! server is asked. Where it cannot tell, or does not in time, one of them is, as without it.

use std::time::Duration;

use super::{Action, Resolver, Settle, checked};
use crate::cache::Location;
use crate::slots::SlotMask;

/// What a look at the shared file system has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// It is there; when `pending`, not yet whole.
    Here {
        /// Not yet whole.
        pending: bool,
    },
    /// It is not there.
    NotHere,
    /// It cannot be told: the file system failed or hangs.
    Unknown,
    /// Too many look-ups wait already: clients are told to come again.
    Refused,
}

impl Resolver {
    /// The look that [`Action::Look`] asked for is done. One that nobody waits for any more is ignored.
    pub fn looked(&mut self, path: &[u8], sight: Sight, now: Duration, actions: &mut Vec<Action>) {
        let Ok(path) = checked(path) else { return };
        let Some(id) = self.queries.find(path) else { return };
        let Some(query) = self.queries.get_mut(id).filter(|query| query.looking) else { return };
        query.looking = false;
        let refresh = query.refresh;
        let (cache, bounces) = (&self.shared.cache, self.cell.bounces());
        let all = self.cell.paths().rights(path).unwrap_or_default().read;
        match sight {
            Sight::Here { pending } => {
                let note = |location: &mut Location| {
                    location.unasked -= all;
                    // One that is being made is its maker's.
                    if !pending || location.have.is_empty() {
                        all.iter().for_each(|slot| location.found(slot, pending));
                    }
                };
                self.holders(None, path, note, now, actions);
            }
            Sight::NotHere => {
                cache.update(path, now, bounces, |location| {
                    all.iter().for_each(|slot| location.absent(slot));
                });
                self.settle(id, Settle::Heard, now, actions);
            }
            Sight::Unknown => {
                query.blind = true;
                cache.update(path, now, bounces, |location| location.unasked = SlotMask::ALL);
                self.ask(path, refresh, false, now, actions);
                self.settle(id, Settle::Heard, now, actions);
            }
            Sight::Refused => {
                cache.update(path, now, bounces, |location| location.unasked = SlotMask::ALL);
                self.settle(id, Settle::GivenUp, now, actions);
            }
        }
    }
}
