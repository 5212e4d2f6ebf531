//! [`send_file`], for sockets that are not those of an event loop.

use std::io;
use std::os::fd::BorrowedFd;

/// Sends a range of a file to a socket without encryption, without copying it through this process. `Ok(0)` means that the
/// file ends before `offset`.
///
/// # Errors
/// The error of the system, among them [`io::ErrorKind::WouldBlock`].
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    length: usize,
) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut at), length)?)
}
