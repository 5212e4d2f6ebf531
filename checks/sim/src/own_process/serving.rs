//! Requests of clients at a node of our own, and changes of names at a server.
//!
//! Servers answer from their disks, because they have no resolver; inner nodes use the desk.

use std::time::Duration;

use cluster::{CreationOutcome, ErrorCode, OVERTAKEN, Permit};

use super::{OwnProcess, Sabotage, client_token, here};
use crate::disk::HostDisk;
use crate::host_address::host_of_name;
use crate::location_service::told;
use crate::messages::{ClientRequest, FileMessage, HostReply, Name, ProcessAction, RequestedAction};

impl OwnProcess {
    /// Handles a client's request.
    pub fn serve(
        &mut self,
        request: &ClientRequest,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let ClientRequest { operation, attempt, .. } = *request;
        if self.location_service.is_none() {
            if disk.hangs {
                return;
            }
            let told = self.perform(request, disk, now, out);
            out.push(ProcessAction::Tell { operation, attempt, told });
            return;
        }
        let mut answer = None;
        self.location_service(now, out, |location_service, _| answer = location_service.warm(request, now));
        let told = match answer {
            Some(answer) => told(answer),
            None if self.turns.is_some() => self.enqueue(request, now),
            None => return self.ask(request, now, out),
        };
        out.push(ProcessAction::Tell { operation, attempt, told });
    }

    /// Passes a client's request to the resolver.
    pub(super) fn ask(&mut self, request: &ClientRequest, now: Duration, out: &mut Vec<ProcessAction>) {
        let ClientRequest { operation, attempt, .. } = *request;
        let mut answer = None;
        self.location_service(now, out, |location_service, orders| {
            let token = client_token(operation, attempt);
            location_service.waiting.insert(token);
            answer = location_service.cold(request, token, now, orders);
            if answer.is_some() {
                location_service.waiting.remove(&token);
            }
        });
        // A request that was answered meanwhile no longer waits: its answer is among the actions.
        let told = answer.map_or(HostReply::Later, told);
        out.push(ProcessAction::Tell { operation, attempt, told });
    }

    /// Executes a request at the server itself.
    fn perform(
        &mut self,
        request: &ClientRequest,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) -> HostReply {
        if self.does(Sabotage::Circles) {
            return HostReply::Redirect(0);
        }
        let path = &request.path;
        let file = disk.files.get(path).copied();
        let Some(file) = file else {
            if request.wish == RequestedAction::Create {
                let permit = self.leases.begin(path, now);
                if permit == Permit::Later && !self.does(Sabotage::Ignores) {
                    return HostReply::Wait(OVERTAKEN);
                }
                if permit == Permit::Refused && !self.does(Sabotage::Ignores) {
                    let door = self.node.door().and_then(|door| host_of_name(door.host()));
                    return door.map_or(HostReply::Failed(ErrorCode::SERVER_ERROR), HostReply::Redirect);
                }
                if permit == Permit::Leased {
                    self.leases.end(path, CreationOutcome::Created, now);
                }
                disk.put(path, Some(request.operation), now);
                out.push(ProcessAction::Made(path.clone()));
                self.name_changed(path, disk, now, out);
                return HostReply::Done;
            }
            // The node that redirected the client here gets a report, unless another client is
            // about to create the file.
            if self.lease_report(path, now).is_some() {
                return HostReply::Missing;
            }
            if let Some(turns) = &mut self.turns {
                turns.name_missed(path, now);
            } else {
                self.tell_parents(&FileMessage::Gone { path: path.clone() }, out);
            }
            return HostReply::Missing;
        };
        match &request.wish {
            RequestedAction::Read => HostReply::Done,
            RequestedAction::Create if file.maker == Some(request.operation) => HostReply::Done,
            RequestedAction::Create => HostReply::Exists,
            RequestedAction::Remove | RequestedAction::Rename(_) => {
                disk.remove(path, now, false);
                self.name_changed(path, disk, now, out);
                if let RequestedAction::Rename(to) = &request.wish {
                    disk.put(to, file.maker, now);
                    self.name_changed(to, disk, now, out);
                }
                HostReply::Done
            }
            RequestedAction::Locate => HostReply::Listed(Vec::new()),
        }
    }

    /// Records a change of the disk without a client, and notifies parents.
    pub fn changed(&mut self, path: &Name, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        if disk.has(path) {
            self.leases.exists(path);
        }
        self.name_changed(path, disk, now, out);
    }

    /// Records that a name was created or removed. Parents are notified at once or by the thread.
    pub(super) fn name_changed(
        &mut self,
        path: &Name,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        match &mut self.turns {
            Some(turns) => turns.name_changed(path, now),
            None => self.report(path, disk, out),
        }
    }

    /// Reports the state of a path to parents.
    pub(super) fn report(&self, path: &Name, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
        let message = if disk.has(path) { here(path) } else { FileMessage::Gone { path: path.clone() } };
        self.tell_parents(&message, out);
    }
}
