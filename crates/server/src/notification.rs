//! Events about files for a program of the site (`ofs.notify`, `ofs.notifymsg`): their text, and their receiver.

use crate::copy_programs::check_executable;
use crate::error::StartError;
use crate::line_feed::{
    LineFeed, PIPE_LINE_BYTES_MAX, PROGRAM_LINE_BYTES_MAX, PipeReaders, PipeReceiver, ProgramReceiver,
    prepare_pipe,
};
use base::{Cgi, Identity};
use config::{Effective, NotifyEvent, NotifyMessage, NotifyPart, NotifyTarget, NotifyVariable};
use logical::{NotifyReceiver, NotifyValues, NotifyingFiles};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vfs::FileSystem;

/// The receiver in the log.
const NAME: &str = "the receiver of ofs.notify";

/// The keys of third-party copies that are shown. Others give rights: `tpc.key`, and `tpc.scgi` with the token for the source.
const COPY_KEYS: [&[u8]; 4] = [b"tpc.src", b"tpc.dst", b"tpc.lfn", b"tpc.org"];

/// Ends a line that was cut. No name makes it, because a backslash of a name is escaped.
const CUT: &[u8] = b"\\...\n";

/// Maximum time in which files are closed at the end of the server.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Interval between looks whether they are.
const CLOSE_LOOK: Duration = Duration::from_millis(5);

/// The events of a server as lines.
pub(crate) struct EventLines {
    messages: BTreeMap<NotifyEvent, NotifyMessage>,
    feed: LineFeed,
    /// Open files whose close will be reported.
    open_files: AtomicUsize,
}

impl NotifyReceiver for EventLines {
    fn notify(&self, event: NotifyEvent, values: NotifyValues<'_>) {
        if let Some(message) = self.messages.get(&event) {
            self.feed.send(fitting_line(message, &values, self.feed.line_bytes_max()));
        }
    }

    fn needs_cgi(&self) -> bool {
        let is_cgi = |part: &NotifyPart| {
            matches!(part, NotifyPart::Variable(NotifyVariable::Cgi | NotifyVariable::NewCgi))
        };
        self.messages.values().any(|message| message.parts.iter().any(is_cgi))
    }

    fn close_follows(&self) {
        self.open_files.fetch_add(1, Ordering::AcqRel);
    }

    fn close_reported(&self) {
        self.open_files.fetch_sub(1, Ordering::AcqRel);
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
            LineFeed::start(NAME, "notify", (bytes_max, PROGRAM_LINE_BYTES_MAX), move |lines| {
                receiver.run(lines)
            })
        }
        NotifyTarget::Pipe(path) => {
            prepare_pipe(path).map_err(|error| StartError::Notification(pipe_fault(path, error)))?;
            let receiver = PipeReceiver::new(path.clone(), PipeReaders::Served);
            LineFeed::start(NAME, "notify", (bytes_max, PIPE_LINE_BYTES_MAX), move |lines| {
                receiver.run(lines)
            })
        }
    };
    let feed = feed.map_err(|source| StartError::System { what: "a thread", source })?;
    Ok(Some(Arc::new(EventLines { messages, feed, open_files: AtomicUsize::new(0) })))
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

/// Waits until the files of clients are closed, gives the receiver the lines that wait, and ends it.
pub(crate) async fn end(lines: Option<Arc<EventLines>>) {
    let Some(lines) = lines else { return };
    let until = Instant::now() + CLOSE_TIME;
    while lines.open_files.load(Ordering::Acquire) > 0 && Instant::now() < until {
        tokio::time::sleep(CLOSE_LOOK).await;
    }
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

/// Returns the line of an event, with its end. One that is longer than `bytes_max` has no opaque text, and is cut if that is
/// not enough: no client makes its events too long to be reported.
fn fitting_line(message: &NotifyMessage, values: &NotifyValues<'_>, bytes_max: usize) -> Vec<u8> {
    let whole = line(message, values, true);
    if whole.len() <= bytes_max {
        return whole;
    }
    let mut line = line(message, values, false);
    if line.len() > bytes_max {
        line.truncate(bytes_max.saturating_sub(CUT.len()));
        let escape = line.iter().rposition(|byte| *byte == b'\\').filter(|at| line.len() - at < ESCAPE_BYTES);
        line.truncate(escape.unwrap_or(line.len()));
        line.extend_from_slice(CUT);
    }
    line
}

/// Returns the line of an event, with its end, and with opaque text if `has_cgi`.
fn line(message: &NotifyMessage, values: &NotifyValues<'_>, has_cgi: bool) -> Vec<u8> {
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
                NotifyVariable::Cgi | NotifyVariable::NewCgi if !has_cgi => {}
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

/// Adds opaque text without what gives rights to its readers.
fn add_cgi(line: &mut Vec<u8>, cgi: &Cgi) {
    let is_shown = |key: &[u8]| match key.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case(b"tpc.") => COPY_KEYS.contains(&key),
        _ => !key.eq_ignore_ascii_case(auth::tokens::TOKEN_KEY.as_bytes()),
    };
    let mut separator = &b""[..];
    for (key, value) in cgi.pairs().filter(|(key, _)| is_shown(key)) {
        line.extend_from_slice(separator);
        add_escaped(line, key);
        if !value.is_empty() {
            line.push(b'=');
            add_escaped(line, value);
        }
        separator = b"&";
    }
}

/// Length of an escaped byte.
const ESCAPE_BYTES: usize = 4;

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

    fn limited(text: &str, target: &Target, new_target: Option<&Target>, bytes_max: usize) -> Vec<u8> {
        let names = LoginNames { user: "u x", host: "[::1]\n", ..LoginNames::default() };
        let caller = Caller::new(Identity::new(&names, 7, None, "host"), true, true);
        let (session, mode, size) = (3, 0o640, 10_000_000_000);
        let values = NotifyValues { caller: &caller, session, target, new_target, mode, size };
        fitting_line(&NotifyMessage::parse(text).unwrap(), &values, bytes_max)
    }

    fn written(text: &str, target: &Target, new_target: Option<&Target>) -> Vec<u8> {
        limited(text, target, new_target, 4096)
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
        let secret =
            target(b"/a", "authz=Bearer%20x&y=2&tpc.key=k&tpc.dst=d&z&AUTHZ=x&tpc.scgi=%09authz=x&TPC.key=k");
        assert_eq!(written("$CGI;$CGI2", &secret, Some(&secret)), b"y=2&tpc.dst=d&z;y=2&tpc.dst=d&z\n");
    }

    #[test]
    fn a_long_line_is_cut_where_it_says_so() {
        let long = target(b"/abc\x01\x02", "x=1");
        for (bytes_max, expected) in [
            (17, &b"/abc\\x01\\x02?x=1\n"[..]),
            (16, b"/abc\\x01\\x02?\n"),
            (14, b"/abc\\x01\\x02?\n"),
            (13, b"/abc\\x01\\...\n"),
            (12, b"/abc\\...\n"),
            (9, b"/abc\\...\n"),
            (8, b"/ab\\...\n"),
        ] {
            let line = limited("$LFN?$CGI", &long, None, bytes_max);
            assert_eq!(line, expected, "{bytes_max}: {}", String::from_utf8_lossy(&line));
            assert!(line.len() <= bytes_max);
        }
    }

    #[test]
    fn names_do_not_make_a_second_line() {
        let odd = target(b"/a\nroot.1:2@h rm /b\r\x7f\\x0a\xff\xc3\xa9", "x=\n");
        let expected = b"/a\\x0aroot.1:2@h rm /b\\x0d\\x7f\\x5cx0a\xff\xc3\xa9?x=\\x0a\n";
        assert_eq!(written("$LFN?$CGI", &odd, None), expected);
    }
}
