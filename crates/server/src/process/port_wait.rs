//! Opens ports that another process is about to give up.
//!
//! A program that a server was starting when it was killed has the sockets of the server until its first
//! system call. A start right after that must not fail.

use std::io::ErrorKind;
use std::time::Duration;

/// Number of attempts.
const ATTEMPTS: u32 = 21;
/// The pause between two, so that a port that stays in use is reported after a second.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens a port, again while it is in use. Blocks.
///
/// # Errors
/// The error of the last attempt; `kind` tells of which kind it is.
pub(crate) fn open_when_free<P, E>(
    mut open: impl FnMut() -> Result<P, E>,
    kind: impl Fn(&E) -> ErrorKind,
) -> Result<P, E> {
    for _ in 1..ATTEMPTS {
        match open() {
            Err(error) if kind(&error) == ErrorKind::AddrInUse => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::net::TcpListener;

    #[test]
    fn a_port_that_becomes_free_is_opened() {
        let mut other = Some(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = other.as_ref().unwrap().local_addr().unwrap();
        let open = || {
            let result = TcpListener::bind(address);
            // It ends between the first and the second attempt.
            other.take();
            result
        };
        assert_eq!(open_when_free(open, io::Error::kind).unwrap().local_addr().unwrap(), address);
    }

    #[test]
    fn a_port_in_use_and_other_errors_are_reported() {
        for (error, expected) in [(ErrorKind::AddrInUse, ATTEMPTS), (ErrorKind::PermissionDenied, 1)] {
            let mut attempts = 0;
            let open = || {
                attempts += 1;
                Err::<(), _>(io::Error::from(error))
            };
            assert_eq!(open_when_free(open, io::Error::kind).unwrap_err().kind(), error);
            assert_eq!(attempts, expected);
        }
    }
}
