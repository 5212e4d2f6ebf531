//! Reservation of the new name of a file that is about to be renamed.
//!
//! Without it a client could create another file of that name elsewhere during the rename. So the
//! child that has the file gets the lease of the new name before it receives the order to rename,
//! as if a client came to create it there.

use std::time::Duration;

use super::checked_path::checked;
use super::select::Question;
use super::{LocationResolver, RequestToken, ResolverAction};
use crate::request::{ClusterAnswer, Intent, SelectOptions};
use crate::slots::{Slot, SlotMask};
use crate::tried_children::TriedChildren;

impl LocationResolver {
    /// Grants the child in `holder` the lease of a path, if the path is free. `None`: the answer
    /// comes as an action for `token`. It is a redirect to that child if the child has the lease.
    pub fn reserve(
        &mut self,
        token: RequestToken,
        path: &[u8],
        holder: Slot,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        if let Some(answer) = self.deserted(now) {
            return Some(answer);
        }
        let options = SelectOptions { intent: Intent::Create, name_only: true, ..SelectOptions::default() };
        // There are no tried children.
        self.invalidate_tried(path, &Question { options, avoided: TriedChildren::default() }, now, actions);
        let avoided = TriedChildren { never: SlotMask::ALL - holder.mask(), ..TriedChildren::default() };
        self.select_by(token, path, Question { options, avoided }, false, now, actions)
    }
}
