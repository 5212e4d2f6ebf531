//! Events for a program of the site (`ofs.notify`).

use super::DiskCheck;
use crate::effective::NotifyTarget;

impl DiskCheck<'_> {
    /// Events need a server with files, a receiver, and texts that are used.
    pub(super) fn notification(&mut self) {
        let effective = self.effective;
        let values = &effective.notification;
        let Some(notification) = &values.notification.value else {
            for message in values.messages.values() {
                let what = "ofs.notifymsg: nothing is reported".to_owned();
                self.warn(&message.origin, what, "it has no effect; set ofs.notify");
            }
            return;
        };
        let origin = &values.notification.origin;
        if effective.cluster.role.redirects() {
            let what = "ofs.notify: a redirector has no files".to_owned();
            return self.warn(origin, what, "it has no effect here; set it at data servers");
        }
        for (event, message) in &values.messages {
            if !notification.events.contains(event) {
                let what = format!("ofs.notifymsg {}: the event is not reported", event.name());
                self.warn(&message.origin, what, "it has no effect; add the event to ofs.notify");
            }
        }
        let NotifyTarget::Program(program) = &notification.target else { return };
        let name = program.path.display();
        if let Err(error) = self.disk.look(&program.path) {
            let what = format!("ofs.notify: {name}: {}", super::describe(&error));
            self.wrong(origin, what, "name an executable program");
        }
    }
}
