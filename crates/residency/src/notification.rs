//! Notifications of requests: a message to a pipe or to a UDP port when a file of a request has come, or has failed.
//!
//! A message is sent once, after the end of the transfer is durable. A crash in between loses it, as the network may.

use crate::entry::{CopyFailure, EntryKey, FailureReason, RequestId, TransferDirection};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::io;
use std::net::{Ipv6Addr, ToSocketAddrs as _, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Maximum number of messages that wait. Further ones are lost.
const WAITING_MAX: usize = 10_000;

/// Maximum size of a message to a pipe, so that it is not mixed with others.
const PIPE_BYTES_MAX: usize = 4096;

/// The messages that a request wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestNotice {
    /// Where they go: `file:///PATH` of a pipe or `udp://HOST:PORT/TEXT`, separated by carriage returns.
    pub destinations: String,
    /// One is sent for each file that has come.
    pub on_success: bool,
    /// One is sent for each file that has failed.
    pub on_failure: bool,
}

/// The end of a transfer for requests that want messages.
pub(crate) struct NoticedEnd {
    pub(crate) notices: Vec<(RequestId, RequestNotice)>,
    pub(crate) key: EntryKey,
    pub(crate) result: Result<(), CopyFailure>,
}

/// Sends messages on a thread of its own, because names have to be looked up.
pub(crate) struct Notifier(Option<SyncSender<NoticedEnd>>);

impl Notifier {
    pub(crate) fn start() -> Self {
        let (sender, ends) = sync_channel(WAITING_MAX);
        let work = move || send_all(&ends);
        match std::thread::Builder::new().name("notices".to_owned()).spawn(work) {
            Ok(_) => Self(Some(sender)),
            Err(error) => {
                tracing::warn!(%error, "requests are not notified: cannot start a thread");
                Self(None)
            }
        }
    }

    /// Sends the messages of an end soon. Does not block.
    pub(crate) fn send(&self, end: NoticedEnd) {
        if end.notices.is_empty() {
            return;
        }
        let sent = self.0.as_ref().map(|sender| sender.try_send(end));
        if let Some(Err(TrySendError::Full(end))) = sent {
            tracing::warn!(path = %end.key.path.shown(), "a notification is lost, because too many wait");
        }
    }
}

fn send_all(ends: &Receiver<NoticedEnd>) {
    while let Ok(end) = ends.recv() {
        for (request, notice) in &end.notices {
            let is_wanted = if end.result.is_ok() { notice.on_success } else { notice.on_failure };
            let destinations = notice.destinations.split('\r').filter(|text| is_wanted && !text.is_empty());
            for destination in destinations {
                if let Err(error) = send(destination, request, &end) {
                    let request = &*request.0;
                    tracing::warn!(request, destination, %error, "a notification is not sent");
                }
            }
        }
    }
}

fn send(destination: &str, request: &RequestId, end: &NoticedEnd) -> io::Result<()> {
    if let Some(path) = destination.strip_prefix("file://") {
        return write_to_pipe(path, &pipe_line(end));
    }
    if let Some(rest) = destination.strip_prefix("udp://") {
        let (address, text) = rest.split_once('/').unwrap_or((rest, ""));
        return send_datagram(address, &datagram(request, text, end));
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "only file:// and udp:// are known"))
}

/// Returns a text in one line.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Returns a message in the form of XRootD's events.
fn pipe_line(end: &NoticedEnd) -> String {
    let path = printable(&end.key.path.text());
    let word = if end.key.direction == TransferDirection::In { "stage" } else { "migr" };
    match &end.result {
        Ok(()) => format!("stage OK {path}\n"),
        Err(failure) => {
            let kind = if failure.reason == FailureReason::NotFound { "ENOENT" } else { "BAD" };
            format!("{word} {kind} {path} {}\n", printable(&failure.text))
        }
    }
}

fn datagram(request: &RequestId, text: &str, end: &NoticedEnd) -> String {
    let word = if end.result.is_ok() { "ready" } else { "unprep" };
    format!("{word} {} {text} {}", request.0, printable(&end.key.path.text()))
}

/// Writes to a named pipe that somebody reads.
fn write_to_pipe(path: &str, line: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The open of another file would have effects.
    let is_pipe = |mode| FileType::from_raw_mode(mode) == FileType::Fifo;
    if !is_pipe(rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a named pipe"));
    }
    let pipe = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    if !is_pipe(rustix::fs::fstat(&pipe)?.st_mode) || line.len() > PIPE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::write(&pipe, line.as_bytes())?;
    Ok(())
}

fn send_datagram(address: &str, text: &str) -> io::Result<()> {
    let to = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let socket = match to.is_ipv4() {
        true => UdpSocket::bind(("0.0.0.0", 0))?,
        false => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.send_to(text.as_bytes(), to).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use base::LogicalPath;
    use std::time::Duration;

    fn end(path: &str, result: Result<(), (FailureReason, &str)>, notice: RequestNotice) -> NoticedEnd {
        let path = LogicalPath::parse(path.as_bytes()).unwrap();
        NoticedEnd {
            notices: vec![(RequestId("ID1".into()), notice)],
            key: EntryKey { direction: TransferDirection::In, path },
            result: result.map_err(|(reason, text)| CopyFailure::new(reason, text)),
        }
    }

    fn notice(destinations: String) -> RequestNotice {
        RequestNotice { destinations, on_success: true, on_failure: true }
    }

    #[test]
    fn messages_have_the_forms_of_xrootd() {
        let to = || notice(String::new());
        assert_eq!(pipe_line(&end("/f", Ok(()), to())), "stage OK /f\n");
        let missing = end("/f", Err((FailureReason::NotFound, "no such file")), to());
        assert_eq!(pipe_line(&missing), "stage ENOENT /f no such file\n");
        let mut bad = end("/a\nb", Err((FailureReason::Temporary, "no\ndrive")), to());
        assert_eq!(pipe_line(&bad), "stage BAD /a?b no?drive\n", "a name adds no line");
        bad.key.direction = TransferDirection::Out;
        assert_eq!(pipe_line(&bad), "migr BAD /a?b no?drive\n");
        let id = RequestId("ID1".into());
        assert_eq!(datagram(&id, "text", &end("/f", Ok(()), to())), "ready ID1 text /f");
        assert_eq!(datagram(&id, "text", &missing), "unprep ID1 text /f");
    }

    #[test]
    fn messages_go_to_all_destinations_that_want_them() {
        let receiver = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let address = receiver.local_addr().unwrap();
        let to = format!("tcp://localhost:1/x\rudp://{address}/one\r\rudp://{address}/two");
        let notifier = Notifier::start();
        let quiet = RequestNotice { on_failure: false, ..notice(to.clone()) };
        notifier.send(end("/quiet", Err((FailureReason::Permanent, "x")), quiet));
        notifier.send(end("/f", Ok(()), notice(to)));
        let mut bytes = [0; 100];
        let mut next = || {
            let length = receiver.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        assert_eq!([next(), next()], ["ready ID1 one /f", "ready ID1 two /f"]);
    }

    #[test]
    fn only_named_pipes_are_written() {
        let directory = std::env::temp_dir().join(format!("residency-notice-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("file");
        std::fs::write(&file, "content").unwrap();
        assert!(write_to_pipe(file.to_str().unwrap(), "line\n").is_err());
        let pipe = directory.join("pipe");
        let kind = FileType::Fifo;
        rustix::fs::mknodat(CWD, &pipe, kind, Mode::from_raw_mode(0o600), 0).unwrap();
        // Nobody reads it.
        assert!(write_to_pipe(pipe.to_str().unwrap(), "line\n").is_err());
        let reader = rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        write_to_pipe(pipe.to_str().unwrap(), "line\n").unwrap();
        let mut bytes = [0; 100];
        assert_eq!(rustix::io::read(&reader, &mut bytes).unwrap(), 5);
        assert_eq!(std::fs::read(&file).unwrap(), b"content");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
