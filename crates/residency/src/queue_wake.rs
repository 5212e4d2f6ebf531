//! The socket by which other processes tell the one that executes transfers that the queue has changed.
//!
//! Its name is that of XRootD. The content of a datagram has no meaning: the process reads the queue itself,
//! and without any datagram it does so once a minute. Only the user of the server reaches the
//! directory.

use crate::queue_thread::Command;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::Sender;
use storage::PrivateDirectory;

/// The name of the socket.
const SOCKET: &str = "xfrd.udp";

/// Starts the thread that receives datagrams. The caller has the lock of the directory, so a socket that is
/// there belongs to nobody.
pub(crate) fn receive(place: &PrivateDirectory, commands: Sender<Command>) -> io::Result<()> {
    match place.remove_unsynced(SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(place.path().join(SOCKET))?;
    let work = move || {
        let mut datagram = [0; 64];
        loop {
            let received = socket.recv(&mut datagram);
            if received.is_err() || commands.send(Command::Wake).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("queue-wake".to_owned()).spawn(work).map(drop)
}

/// Tells the process that executes transfers in a directory, if there is one, that its queue has changed.
pub(crate) fn wake(directory: &Path) {
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(b"!\n", directory.join(SOCKET))
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "nobody executes transfers now");
    }
}
