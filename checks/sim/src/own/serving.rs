//! Requests of clients at a node of our own, and changes of names at a server.
//!
//! Servers answer from their disks, because they have no resolver; inner nodes use the desk.

use std::time::Duration;

use cluster::{CreationOutcome, ErrorCode, OVERTAKEN, Permit};

use super::{Own, Sabotage, client_token, here};
use crate::desk::told;
use crate::disk::Disk;
use crate::host::Host;
use crate::talk::{Deed, Files, Name, Request, Told, Wish};

impl Own {
    /// Handles a client's request.
    pub fn serve(&mut self, request: &Request, disk: &mut Disk, now: Duration, out: &mut Vec<Deed>) {
        let Request { operation, attempt, .. } = *request;
        if self.desk.is_none() {
            if disk.hangs {
                return;
            }
            let told = self.perform(request, disk, now, out);
            out.push(Deed::Tell { operation, attempt, told });
            return;
        }
        let mut answer = None;
        self.desk(now, out, |desk, _| answer = desk.warm(request, now));
        let told = match answer {
            Some(answer) => told(answer),
            None if self.turns.is_some() => self.enqueue(request, now),
            None => return self.ask(request, now, out),
        };
        out.push(Deed::Tell { operation, attempt, told });
    }

    /// Passes a client's request to the resolver.
    pub(super) fn ask(&mut self, request: &Request, now: Duration, out: &mut Vec<Deed>) {
        let Request { operation, attempt, .. } = *request;
        let mut answer = None;
        self.desk(now, out, |desk, orders| {
            let token = client_token(operation, attempt);
            desk.waiting.insert(token);
            answer = desk.cold(request, token, now, orders);
            if answer.is_some() {
                desk.waiting.remove(&token);
            }
        });
        // A request that was answered meanwhile no longer waits: its answer is among the actions.
        let told = answer.map_or(Told::Later, told);
        out.push(Deed::Tell { operation, attempt, told });
    }

    /// Executes a request at the server itself.
    fn perform(&mut self, request: &Request, disk: &mut Disk, now: Duration, out: &mut Vec<Deed>) -> Told {
        if self.does(Sabotage::Circles) {
            return Told::Redirect(0);
        }
        let path = &request.path;
        let file = disk.files.get(path).copied();
        let Some(file) = file else {
            if request.wish == Wish::Create {
                let permit = self.leases.begin(path, now);
                if permit == Permit::Later && !self.does(Sabotage::Ignores) {
                    return Told::Wait(OVERTAKEN);
                }
                if permit == Permit::Refused && !self.does(Sabotage::Ignores) {
                    let door = self.node.door().and_then(|door| Host::index(door.host()));
                    return door.map_or(Told::Failed(ErrorCode::SERVER_ERROR), Told::Redirect);
                }
                if permit == Permit::Leased {
                    self.leases.end(path, CreationOutcome::Created, now);
                }
                disk.put(path, Some(request.operation), now);
                out.push(Deed::Made(path.clone()));
                self.name_changed(path, disk, now, out);
                return Told::Done;
            }
            // The node that redirected the client here gets a report, unless another client is
            // about to create the file.
            if self.lease_number(path, now).is_some() {
                return Told::Missing;
            }
            if let Some(turns) = &mut self.turns {
                turns.name_missed(path, now);
            } else {
                self.tell_parents(&Files::Gone { path: path.clone() }, out);
            }
            return Told::Missing;
        };
        match &request.wish {
            Wish::Read => Told::Done,
            Wish::Create if file.maker == Some(request.operation) => Told::Done,
            Wish::Create => Told::Exists,
            Wish::Remove | Wish::Rename(_) => {
                disk.remove(path, now, false);
                self.name_changed(path, disk, now, out);
                if let Wish::Rename(to) = &request.wish {
                    disk.put(to, file.maker, now);
                    self.name_changed(to, disk, now, out);
                }
                Told::Done
            }
            Wish::Locate => Told::Listed(Vec::new()),
        }
    }

    /// Records a change of the disk without a client, and notifies parents.
    pub fn changed(&mut self, path: &Name, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        if disk.has(path) {
            self.leases.exists(path);
        }
        self.name_changed(path, disk, now, out);
    }

    /// Records that a name was created or removed. Parents are notified at once or by the thread.
    pub(super) fn name_changed(&mut self, path: &Name, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        match &mut self.turns {
            Some(turns) => turns.name_changed(path, now),
            None => self.report(path, disk, out),
        }
    }

    /// Reports the state of a path to parents.
    pub(super) fn report(&self, path: &Name, disk: &Disk, out: &mut Vec<Deed>) {
        let message = if disk.has(path) { here(path) } else { Files::Gone { path: path.clone() } };
        self.tell_parents(&message, out);
    }
}
