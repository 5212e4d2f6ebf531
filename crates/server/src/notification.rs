//! Events about files for a program of the site (`ofs.notify`, `ofs.notifymsg`): their text, and their receiver.

use crate::copy_programs::check_executable;
use crate::error::StartError;
use crate::line_feed::{LineFeed, PipeReaders, PipeReceiver, ProgramReceiver, prepare_pipe};
use base::{Cgi, Identity};
use config::{Effective, NotifyEvent, NotifyMessage, NotifyPart, NotifyTarget, NotifyVariable};
use logical::{NotifyReceiver, NotifyValues, NotifyingFiles};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use vfs::FileSystem;

/// The receiver in the log.
const NAME: &str = "the receiver of ofs.notify";

/// The keys of tokens, and of the files that a client grants to another server.
const SECRET_KEYS: [&str; 2] = [auth::tokens::TOKEN_KEY, "tpc.key"];

/// The events of a server as lines.
pub(crate) struct EventLines {
    messages: BTreeMap<NotifyEvent, NotifyMessage>,
    feed: LineFeed,
}

impl NotifyReceiver for EventLines {
    fn notify(&self, event: NotifyEvent, values: NotifyValues<'_>) {
        if let Some(message) = self.messages.get(&event) {
            self.feed.send(line(message, &values));
        }
    }
}

/// Starts the receiver, if the configuration has one. A redirector has no files.
///
/// # Errors
/// The program cannot be executed, or the pipe is none.
fn start(effective: &Effective) -> Result<Option<Arc<EventLines>>, StartError> {
    let values = &effective.notification;
    let Some(notification) = &values.notification.value else { return Ok(None) };
    if effective.cluster.role.redirects() {
        return Ok(None);
    }
    let message = |event: NotifyEvent| match values.messages.get(&event) {
        Some(message) => Ok(message.value.clone()),
        None => NotifyMessage::parse(&event.built_in_text()),
    };
    let messages = notification.events.iter().map(|event| Ok((*event, message(*event)?)));
    let messages = messages.collect::<Result<_, String>>().map_err(StartError::Notification)?;
    let bytes_max = usize::try_from(notification.waiting_bytes_max()).unwrap_or(usize::MAX);
    let feed = match &notification.target {
        NotifyTarget::Program(program) => {
            check_executable(&program.path).map_err(|reason| {
                StartError::Notification(format!("{reason}; name an executable program in ofs.notify"))
            })?;
            let receiver = ProgramReceiver::new(program.clone(), "ofs.notify");
            LineFeed::start(NAME, "notify", bytes_max, move |lines| receiver.run(lines))
        }
        NotifyTarget::Pipe(path) => {
            prepare_pipe(path).map_err(|error| StartError::Notification(pipe_fault(path, error)))?;
            let receiver = PipeReceiver::new(path.clone(), PipeReaders::Served);
            LineFeed::start(NAME, "notify", bytes_max, move |lines| receiver.run(lines))
        }
    };
    let feed = feed.map_err(|source| StartError::System { what: "a thread", source })?;
    Ok(Some(Arc::new(EventLines { messages, feed })))
}

fn pipe_fault(path: &Path, error: Errno) -> String {
    let path = path.display();
    match error {
        Errno::INVAL => {
            format!("{path} exists and is not a named pipe; remove it, or name another path in ofs.notify")
        }
        error => {
            let reason = base::errno_text(&error.into());
            format!(
                "cannot create or open the pipe {path}: {reason}; correct ofs.notify, or give the server access"
            )
        }
    }
}

/// Files, and the receiver of their events.
type WatchedFiles = (Option<Arc<dyn FileSystem>>, Option<Arc<EventLines>>);

/// Starts the receiver of events, and returns files whose events go there. Without a receiver these are `files`.
///
/// # Errors
/// The receiver cannot be used.
pub(crate) fn watch(
    files: Option<Arc<dyn FileSystem>>,
    effective: &Effective,
) -> Result<WatchedFiles, StartError> {
    let Some(lines) = start(effective)? else { return Ok((files, None)) };
    let events: BTreeSet<_> = lines.messages.keys().copied().collect();
    let watched = files.map(|files| NotifyingFiles::before(files, events, lines.clone()));
    Ok((watched, Some(lines)))
}

/// Gives the receiver the lines that wait, and ends it.
pub(crate) async fn end(lines: Option<Arc<EventLines>>) {
    let Some(lines) = lines else { return };
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    let end = move || {
        lines.feed.end();
        drop(done);
    };
    // Without a thread the lines that wait are lost.
    if std::thread::Builder::new().name("notify-end".to_owned()).spawn(end).is_ok() {
        let _ = ended.await;
    }
}

/// Returns the line of an event, with its end.
fn line(message: &NotifyMessage, values: &NotifyValues<'_>) -> Vec<u8> {
    let mut line = Vec::with_capacity(128);
    let (target, new_target) = (values.target, values.new_target);
    for part in &message.parts {
        match part {
            NotifyPart::Text(text) => line.extend_from_slice(text.as_bytes()),
            NotifyPart::Variable(variable) => match variable {
                NotifyVariable::Client => add_client(&mut line, &values.caller.identity, values.session),
                NotifyVariable::Path => add_escaped(&mut line, target.path.as_bytes()),
                NotifyVariable::NewPath => {
                    add_escaped(&mut line, new_target.map_or(&[][..], |target| target.path.as_bytes()));
                }
                NotifyVariable::Cgi => add_cgi(&mut line, &target.cgi),
                NotifyVariable::NewCgi => {
                    new_target.iter().for_each(|target| add_cgi(&mut line, &target.cgi));
                }
                // Writing to memory does not fail.
                NotifyVariable::Mode => write!(line, "{:o}", values.mode).unwrap_or_default(),
                NotifyVariable::Size => write!(line, "{}", values.size).unwrap_or_default(),
            },
        }
    }
    line.push(b'\n');
    line
}

/// Adds `user.pid:number@host`, a word of any client.
fn add_client(line: &mut Vec<u8>, client: &Identity, session: u64) {
    let text = format!("{}.{}:{session}@{}", client.user(), client.pid, client.host());
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    line.extend_from_slice(text.replace(is_odd, "_").as_bytes());
}

/// Adds opaque text without what gives rights to whoever reads it.
fn add_cgi(line: &mut Vec<u8>, cgi: &Cgi) {
    let shown = SECRET_KEYS.iter().fold(cgi.clone(), |cgi, key| cgi.without(key));
    add_escaped(line, shown.as_bytes());
}

/// Adds bytes of a client, with `\xNN` in place of control characters and of the backslash. So a line stays one line, and the
/// bytes can be found again.
fn add_escaped(line: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            // Writing to memory does not fail.
            b'\\' | ..b' ' | 0x7f => write!(line, "\\x{byte:02x}").unwrap_or_default(),
            byte => line.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{LogicalPath, LoginNames};
    use vfs::{Caller, Target};

    fn target(path: &[u8], cgi: &str) -> Target {
        Target { path: LogicalPath::parse(path).unwrap(), cgi: Cgi::new(cgi.as_bytes()) }
    }

    fn written(text: &str, target: &Target, new_target: Option<&Target>) -> Vec<u8> {
        let names = LoginNames { user: "u x", host: "[::1]\n", ..LoginNames::default() };
        let caller = Caller::new(Identity::new(&names, 7, None, "host"), true, true);
        let (session, mode, size) = (3, 0o640, 10_000_000_000);
        let values = NotifyValues { caller: &caller, session, target, new_target, mode, size };
        line(&NotifyMessage::parse(text).unwrap(), &values)
    }

    #[test]
    fn a_line_has_the_values_of_its_event() {
        let (from, to) = (target(b"/a", "x=1"), target(b"/b c", "y=2"));
        for (text, expected) in [
            ("$TID create $FMODE $LFN", "u_x.7:3@[::1]_ create 640 /a\n"),
            ("$LFN1?$CGI1 $LFN2?$CGI2;$LFN?$CGI", "/a?x=1 /b c?y=2;/a?x=1\n"),
            ("\\$LFN $FSIZE", "$LFN 10000000000\n"),
        ] {
            assert_eq!(written(text, &from, Some(&to)), expected.as_bytes(), "{text}");
        }
        assert_eq!(written("[$LFN2$CGI2]", &from, None), b"[]\n");
        let secret = target(b"/a", "authz=Bearer%20x&y=2&tpc.key=k&tpc.dst=d");
        assert_eq!(written("$CGI;$CGI2", &secret, Some(&secret)), b"y=2&tpc.dst=d;y=2&tpc.dst=d\n");
    }

    #[test]
    fn names_do_not_make_a_second_line() {
        let odd = target(b"/a\nroot.1:2@h rm /b\r\x7f\\x0a\xff\xc3\xa9", "x=\n");
        let expected = b"/a\\x0aroot.1:2@h rm /b\\x0d\\x7f\\x5cx0a\xff\xc3\xa9?x=\\x0a\n";
        assert_eq!(written("$LFN?$CGI", &odd, None), expected);
    }
}
