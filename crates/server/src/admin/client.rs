//! The client side of the admin socket. It blocks, because it is used by command line programs
//! only; servers use `socket`.

use super::message::{AdminRequest, LINE_BYTES_MAX};
use super::socket::reachable;
use crate::process::{control_directory, directory_of_lock, states};
use base::shown;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The deadline of an answer, which may wait for a drain or a slow disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An error of a request on the admin socket.
#[derive(Debug)]
pub enum AdminError {
    /// No process listens at this path.
    NoServer(PathBuf),
    /// The user may not use the socket.
    Denied(PathBuf),
    /// The connection failed.
    Broken(io::Error),
    /// The reply is not a valid answer.
    Garbled(String),
    /// The server refused the request, with its reason.
    Refused(String),
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer(path) => {
                write!(
                    f,
                    "no server answers at {}; is it running, with this admin path and instance?",
                    path.display()
                )
            }
            Self::Denied(path) => {
                write!(
                    f,
                    "{} is for the user of the server alone; run this as that user or root",
                    path.display()
                )
            }
            Self::Broken(error) => write!(f, "the server broke off: {error}"),
            Self::Garbled(text) => write!(f, "the server's answer makes no sense: {text}"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for AdminError {}

/// A running server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveServer {
    /// The admin directory.
    pub directory: PathBuf,
    /// The socket.
    pub socket: PathBuf,
    /// A description of the server: `pid 4711, port 1094`.
    pub note: String,
}

/// Sends a request to the server at `socket`. Returns the fields of the answer, including `ok`.
///
/// # Errors
/// See [`AdminError`].
pub fn ask(socket: &Path, request: &AdminRequest) -> Result<serde_json::Value, AdminError> {
    let stream = connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AdminError::NoServer(socket.to_owned()),
        io::ErrorKind::PermissionDenied => AdminError::Denied(socket.to_owned()),
        _ => AdminError::Broken(error),
    })?;
    let line = exchange(&stream, request).map_err(AdminError::Broken)?;
    let answer: serde_json::Value = serde_json::from_str(&line)
        .map_err(|error| AdminError::Garbled(shown(&error.to_string()).to_string()))?;
    if answer["ok"] == true {
        return Ok(answer);
    }
    let reason = answer["error"].as_str().unwrap_or("no reason given");
    Err(AdminError::Refused(shown(reason).to_string()))
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (short, _directory) = reachable(socket)?;
    UnixStream::connect(short)
}

/// Returns the deadline of an answer. Work on a whole tree has none; it ends when either process
/// ends.
fn answer_timeout(request: &AdminRequest) -> Option<Duration> {
    let is_long = matches!(
        request,
        AdminRequest::Unfinished { below: Some(_) }
            | AdminRequest::PurgePreview { .. }
            | AdminRequest::EvictCached { .. }
    );
    (!is_long).then_some(ANSWER_TIMEOUT)
}

fn exchange(stream: &UnixStream, request: &AdminRequest) -> io::Result<String> {
    stream.set_read_timeout(answer_timeout(request))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    (&mut &*stream).write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX as u64)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok(line)
}

/// Returns all running servers that this user may access, on any admin directory. They are found by
/// the locks that they hold.
pub fn running_servers() -> Vec<LiveServer> {
    let mut directories = states();
    directories.extend(locked_directories());
    directories.sort();
    directories.dedup();
    directories.iter().flat_map(|directory| live_servers(Some(directory))).collect()
}

/// Returns the admin directories whose lock is held by a process that this user may access.
fn locked_directories() -> Vec<PathBuf> {
    // The format is `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. A process that waits for a
    // lock has an arrow before the kind.
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holder = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        (fields.next()? == "FLOCK").then(|| fields.nth(2)?.parse::<u32>().ok())?
    };
    let mut holders: Vec<u32> = table.lines().filter_map(holder).collect();
    holders.sort_unstable();
    holders.dedup();
    let files = holders.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok()).flatten();
    let files = files.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    files.filter_map(|file| directory_of_lock(&file)).collect()
}

/// Returns the servers that run on this admin directory. Without one, returns this user's servers
/// on the default directories.
pub fn live_servers(admin: Option<&Path>) -> Vec<LiveServer> {
    let directories = admin.map_or_else(states, |directory| vec![directory.to_owned()]);
    let mut found = Vec::new();
    for directory in directories {
        let control = control_directory(&directory);
        let Ok(entries) = fs::read_dir(&control) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "sock") && connect(&path).is_ok() {
                let note =
                    fs::read_to_string(path.with_extension("lock")).unwrap_or_default().trim().to_owned();
                found.push(LiveServer { directory: directory.clone(), socket: path, note });
            }
        }
    }
    found
}
