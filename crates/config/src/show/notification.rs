//! The values of `ofs.notify` and `ofs.notifymsg` as text.

use super::lines::{EffectiveLines, Reload};
use crate::effective::{Notification, NotificationConfig, NotifyTarget};

/// Shows the values. They need a restart, because the program is started with the server.
pub(super) fn show(values: &NotificationConfig, lines: &mut EffectiveLines) {
    lines.add(Reload::Restart, "ofs.notify", &values.notification, |value| value.as_ref().map(notification));
    for (event, message) in &values.messages {
        lines.restart("ofs.notifymsg", message, |message| format!("{} {}", event.name(), message.text));
    }
}

fn notification(value: &Notification) -> String {
    let Notification { events, waiting: (small, large), target } = value;
    let events = events.iter().map(|event| event.name()).collect::<Vec<_>>().join(" ");
    let target = match target {
        NotifyTarget::Pipe(path) => format!(">{}", path.display()),
        NotifyTarget::Program(program) => {
            let arguments = program.arguments.iter().map(|argument| format!(" {argument}"));
            format!("|{}{}", program.path.display(), arguments.collect::<String>())
        }
    };
    format!("{events} msgs {small} {large} {target}")
}
