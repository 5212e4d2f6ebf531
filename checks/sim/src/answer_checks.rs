//! Checks of the answers that clients get, by the current contents of all disks.
//!
//! The world knows all disks and connections, so each answer is judged when it is given.

use std::time::Duration;

use crate::client::ClientOperation;
use crate::host::HostKind;
use crate::messages::Name;
use crate::tree_view::{KNOWN_AFTER, TreeView};

/// The time for which a lost node counts as connected. Its parent reports no file as missing for 30
/// s, clients at a supervisor wait for 5 s, and the node itself may detect the loss some seconds
/// later than its parent.
const EXPECTED_BACK: Duration = Duration::from_secs(2);

/// The time below which a reconnected node is not expected again after a further loss; it may
/// detect its loss late.
const STAYED: Duration = Duration::from_secs(10);

/// The state of a world at the time of an answer.
pub(crate) struct AnswerCheck<'a> {
    pub(crate) tree: TreeView<'a>,
    pub(crate) operations: &'a [ClientOperation],
}

impl AnswerCheck<'_> {
    /// Checks a manager's answer to an operation that its file is missing: no server that has been
    /// in its tree for a while may have it. Returns the violation.
    pub(crate) fn error_of_missing(&self, host: usize, operation: &ClientOperation) -> Option<String> {
        let Self { tree, .. } = self;
        if !matches!(tree.hosts[host].kind, HostKind::Manager) {
            return None;
        }
        let (path, tried, now) = (&operation.path, operation.tried(), tree.now);
        let holder = (0..tree.hosts.len()).find(|index| {
            let found = &tree.hosts[*index];
            let Some(file) = found.disk.files.get(path) else { return false };
            let settled = file.since + KNOWN_AFTER <= found.local(now);
            settled && !tried.contains(index) && tree.belongs(*index, host, now)
        });
        // A client is not redirected again to a host that it tried, nor to hosts behind that.
        let hidden = |index: usize| tree.ancestors(index).iter().any(|above| tried.contains(above));
        let holder = holder.filter(|holder| !hidden(*holder))?;
        let (number, text) = (operation.number, String::from_utf8_lossy(path));
        Some(format!(
            "{now:?}: operation {number} was told by {host} that {text} is missing; {holder} has it"
        ))
    }

    /// Checks a file that a client created: no other host may have it that could be queried when
    /// the manager redirected the client. Returns the violation.
    pub(crate) fn error_of_created(&self, index: usize, path: &Name) -> Option<String> {
        let Self { tree, operations } = self;
        let maker = tree.hosts[index].disk.files.get(path).and_then(|file| file.maker)?;
        let operation = operations.get(maker as usize)?;
        if !tree.is_honest() {
            return None;
        }
        let (now, manager, decided) = (tree.now, operation.manager(), operation.decided);
        let alone = tree.hosts.iter().filter(|host| host.kind.is_manager()).count() == 1;
        let has = |other: &usize| {
            let host = &tree.hosts[*other];
            let Some(file) = host.disk.files.get(path).filter(|_| *other != index) else { return false };
            let there = match host.missed {
                // A parent that was restarted meanwhile has lost its knowledge. The time of a
                // flapping child counts from its first loss, and a stalled child detects its loss
                // late.
                Some(since) if since < host.seated + STAYED => false,
                Some(_) if host.stood_still(now, EXPECTED_BACK + KNOWN_AFTER) => false,
                Some(since) if alone && since + EXPECTED_BACK > now => {
                    host.seat.is_some_and(|(parent, life)| {
                        tree.hosts[parent].epoch == life
                            && (parent == manager || tree.belongs(parent, manager, decided))
                    })
                }
                Some(_) => false,
                None => tree.belongs(*other, manager, decided),
            };
            there && file.since + KNOWN_AFTER <= host.local(decided)
        };
        let other = (0..tree.hosts.len()).find(has)?;
        let text = String::from_utf8_lossy(path);
        Some(format!("{now:?}: {text} was made at {index}, but {other} has it"))
    }
}
