//! The files of a server of our own: requests of clients, and changes of names.
//!
//! A server answers from its disk, because it has no resolver.

use std::time::Duration;

use cluster::tree::ClusterNode;
use cluster::{CreationOutcome, ErrorCode, OVERTAKEN, Permit};

use super::leases::NodeLeases;
use super::parents::Parents;
use super::{Sabotage, WorkTurns};
use crate::disk::HostDisk;
use crate::host_address::host_of_name;
use crate::messages::{ClientRequest, FileMessage, HostReply, Name, ProcessAction, RequestedAction};

/// The file service of a server during one event.
pub(super) struct FileService<'a> {
    pub(super) node: &'a ClusterNode,
    pub(super) leases: &'a mut NodeLeases,
    /// The thread that reports names to parents; without it they are reported at once.
    pub(super) turns: Option<&'a mut WorkTurns>,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) disk: &'a mut HostDisk,
    pub(super) now: Duration,
    pub(super) out: &'a mut Vec<ProcessAction>,
}

impl FileService<'_> {
    fn does(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Executes a request at the server itself.
    pub(super) fn perform(&mut self, request: &ClientRequest) -> HostReply {
        if self.does(Sabotage::Circles) {
            return HostReply::Redirect(0);
        }
        let (path, now) = (&request.path, self.now);
        let file = self.disk.files.get(path).copied();
        let Some(file) = file else {
            if request.wish == RequestedAction::Create {
                let permit = self.leases.at_server.begin(path, now);
                if permit == Permit::Later && !self.does(Sabotage::Ignores) {
                    return HostReply::Wait(OVERTAKEN);
                }
                if permit == Permit::Refused && !self.does(Sabotage::Ignores) {
                    let door = self.node.door().and_then(|door| host_of_name(door.host()));
                    return door.map_or(HostReply::Failed(ErrorCode::SERVER_ERROR), HostReply::Redirect);
                }
                if permit == Permit::Leased {
                    self.leases.at_server.end(path, CreationOutcome::Created, now);
                }
                self.disk.put(path, Some(request.operation), now);
                self.out.push(ProcessAction::Made(path.clone()));
                self.name_changed(path);
                return HostReply::Done;
            }
            // The node that redirected the client here gets a report, unless another client is
            // about to create the file.
            if self.leases.report(path, None, now).is_some() {
                return HostReply::Missing;
            }
            if let Some(turns) = &mut self.turns {
                turns.name_missed(path, now);
            } else {
                Parents::of(self.node).tell(&FileMessage::Gone { path: path.clone() }, self.out);
            }
            return HostReply::Missing;
        };
        match &request.wish {
            RequestedAction::Read => HostReply::Done,
            RequestedAction::Create if file.maker == Some(request.operation) => HostReply::Done,
            RequestedAction::Create => HostReply::Exists,
            RequestedAction::Remove | RequestedAction::Rename(_) => {
                self.disk.remove(path, now, false);
                self.name_changed(path);
                if let RequestedAction::Rename(to) = &request.wish {
                    self.disk.put(to, file.maker, now);
                    self.name_changed(to);
                }
                HostReply::Done
            }
            RequestedAction::Locate => HostReply::Listed(Vec::new()),
        }
    }

    /// Records a change of the disk without a client, and notifies parents.
    pub(super) fn changed(&mut self, path: &Name) {
        if self.disk.has(path) {
            self.leases.at_server.exists(path);
        }
        self.name_changed(path);
    }

    /// Records that a name was created or removed. Parents are notified at once or by the thread.
    fn name_changed(&mut self, path: &Name) {
        match &mut self.turns {
            Some(turns) => turns.name_changed(path, self.now),
            None => Parents::of(self.node).report(path, self.disk, self.out),
        }
    }
}
