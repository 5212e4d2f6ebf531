//! Requests of clients at one of our own nodes, and names that come and go at a server.

use std::time::Duration;

use cluster::{ErrorCode, OVERTAKEN, Outcome, Permit};

use super::{Own, Sabotage, client_token, here};
use crate::desk::told;
use crate::disk::Disk;
use crate::host::Host;
use crate::talk::{Deed, Files, Name, Request, Told, Wish};

impl Own {
    /// A client's request.
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

    /// Asks the location machine for a client.
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
        // One that was answered meanwhile waits no more: its answer is among the deeds.
        let told = answer.map_or(Told::Later, told);
        out.push(Deed::Tell { operation, attempt, told });
    }

    /// A request that reached the server itself.
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
                    self.leases.end(path, Outcome::Created, now);
                }
                disk.put(path, Some(request.operation), now);
                out.push(Deed::Made(path.clone()));
                self.name_changed(path, disk, now, out);
                return Told::Done;
            }
            // The parent that sent the client here receives a report, unless another client is to create the file.
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

    /// The disk got or lost a file without a client. Reports it to parents.
    pub fn changed(&mut self, path: &Name, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        if disk.has(path) {
            self.leases.exists(path);
        }
        self.name_changed(path, disk, now, out);
    }

    /// A name came to exist or ceased to. Reports it to parents, at once or in a turn of the thread.
    pub(super) fn name_changed(&mut self, path: &Name, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        match &mut self.turns {
            Some(turns) => turns.name_changed(path, now),
            None => self.report(path, disk, out),
        }
    }

    /// Reports to parents whether a path is here.
    pub(super) fn report(&self, path: &Name, disk: &Disk, out: &mut Vec<Deed>) {
        let message = if disk.has(path) { here(path) } else { Files::Gone { path: path.clone() } };
        self.tell_parents(&message, out);
    }
}
