//! The server side of the admin socket. It passes requests to `control` over a channel, because
//! they are answered on the thread that handles signals.

use super::message::{AdminRequest, AdminResponse, LINE_BYTES_MAX};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::PrivateDirectory;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Maximum number of connections served at a time; further ones wait.
const CONNECTIONS_MAX: usize = 16;

/// An idle admin connection is closed after this time.
const IDLE: Duration = Duration::from_secs(60);

/// The interval between two checks for a disconnect of a client that waits for an answer.
const HANG_UP_CHECK: Duration = Duration::from_millis(500);

/// Maximum length of a socket path in the system (`sun_path` without its NUL).
const SOCKET_PATH_MAX: usize = 107;

/// A request that waits for its answer.
#[derive(Debug)]
pub struct AdminCall {
    /// The request.
    pub request: AdminRequest,
    /// The channel of the answer.
    pub answer: oneshot::Sender<AdminResponse>,
}

/// An open admin socket.
pub struct AdminSocket {
    listener: StdListener,
}

impl AdminSocket {
    /// Opens the socket with mode 0600. A stale socket of a dead server is removed, because the
    /// caller holds the lock of the directory.
    ///
    /// # Errors
    /// The error of the system.
    pub fn bind(directory: &PrivateDirectory, name: &str) -> io::Result<Self> {
        directory.remove(name)?;
        let path = in_open_directory(directory).join(name);
        let listener = StdListener::bind(&path)?;
        // No other user can have connected before, because only the owner has access to the
        // directory.
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    /// Serves connections until the future is dropped.
    ///
    /// # Errors
    /// The socket cannot be registered with the reactor.
    pub async fn serve(self, calls: mpsc::Sender<AdminCall>) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener)?;
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(seat) = seats.clone().acquire_owned().await else { return Ok(()) };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let calls = calls.clone();
                    tokio::spawn(async move {
                        // An error means that the client has disconnected.
                        converse(stream, &calls).await.ok();
                        drop(seat);
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await, // out of descriptors
            }
        }
    }
}

async fn converse(stream: UnixStream, calls: &mpsc::Sender<AdminCall>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut read).take(LINE_BYTES_MAX as u64);
        let length = tokio::time::timeout(IDLE, limited.read_until(b'\n', &mut line)).await??;
        if length == 0 {
            return Ok(());
        }
        let response = match serde_json::from_slice(&line) {
            Ok(request) => tokio::select! {
                response = ask_server(request, calls) => response,
                // Work for a disconnected client is cancelled.
                () = hung_up(write.as_ref()) => return Ok(()),
            },
            Err(error) => AdminResponse::failed(format!("not a request: {error}")),
        };
        let mut text = response.to_json().to_string();
        text.push('\n');
        write.write_all(text.as_bytes()).await?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
    }
}

async fn ask_server(request: AdminRequest, calls: &mpsc::Sender<AdminCall>) -> AdminResponse {
    let (answer, answered) = oneshot::channel();
    if calls.send(AdminCall { request, answer }).await.is_err() {
        return AdminResponse::failed("the server is ending");
    }
    answered.await.unwrap_or_else(|_| AdminResponse::failed("the server is ending"))
}

/// Waits until the client has closed the connection. A client that has only closed its sending side
/// still waits for its answer.
async fn hung_up(stream: &UnixStream) {
    let mut beat = tokio::time::interval(HANG_UP_CHECK);
    loop {
        beat.tick().await;
        let mut polled = [PollFd::new(stream, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = rustix::event::poll(&mut polled, Some(&now)).unwrap_or(0);
        if count > 0 && polled.iter().any(|one| one.revents().contains(PollFlags::HUP)) {
            return;
        }
    }
}

/// Returns a name of the socket that is short enough for the system. A path that is too long is
/// replaced by one through its open directory, which must be kept open until the call is made.
pub(super) fn reachable(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let directory = File::open(directory)?;
    Ok((in_open_directory(&directory).join(name), Some(directory)))
}

/// Returns a path that leads to an open directory, even if its name has changed.
fn in_open_directory(directory: &impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_fd().as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream as Client;
    use tokio::task::JoinHandle;

    /// Sends a request over a served connection and returns the resulting call.
    async fn begin(is_last: bool) -> (Client, AdminCall, JoinHandle<()>) {
        let (mut client, served) = Client::pair().unwrap();
        let request = b"{\"command\":\"unfinished\",\"below\":\"/x\"}\n";
        client.write_all(request).unwrap();
        if is_last {
            client.shutdown(Shutdown::Write).unwrap();
        }
        served.set_nonblocking(true).unwrap();
        let (calls, mut called) = mpsc::channel(1);
        let served = UnixStream::from_std(served).unwrap();
        let conversation = tokio::spawn(async move { drop(converse(served, &calls).await) });
        (client, called.recv().await.unwrap(), conversation)
    }

    #[tokio::test]
    async fn the_request_of_a_disconnected_client_is_cancelled() {
        let (client, mut call, _) = begin(false).await;
        drop(client);
        call.answer.closed().await;
    }

    #[tokio::test]
    async fn a_client_that_closed_its_sending_side_gets_its_answer() {
        // The first check happens together with the request.
        let (mut client, call, conversation) = begin(true).await;
        call.answer.send(AdminResponse::Draining).unwrap();
        conversation.await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"ok\":true}\n");
    }
}
