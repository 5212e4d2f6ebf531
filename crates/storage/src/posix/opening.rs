//! Opens of files that are removed meanwhile because their space is needed.
//!
//! Such a removal makes opens fail with `EAGAIN` for a moment ([`super::unused_file`]). An open that has
//! found the name just before can get the file without a name. It begins again in both cases, so that
//! no client writes to a file that is gone.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Number of attempts to open a file that is examined for its removal, and the time between them.
const TRIES: usize = 500;
const INTERVAL: Duration = Duration::from_millis(4);

/// The identity of an open regular file.
#[derive(Clone, Copy)]
pub(super) struct OpenedFile {
    pub(super) device: u64,
    inode: u64,
    has_name: bool,
}

impl OpenedFile {
    /// Prepares the descriptor of a file for reads and writes. Fails if the file is not a regular one.
    pub(super) fn new(fd: &OwnedFd) -> io::Result<Self> {
        let status = rustix::fs::fstat(fd)?;
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::NOTBLK.into()),
        }
        // `O_NONBLOCK` was needed for opening only; some kernels would refuse to wait for the data
        // of such a file later.
        rustix::fs::fcntl_setfl(fd, OFlags::empty())?;
        Ok(Self { device: status.st_dev, inode: status.st_ino, has_name: status.st_nlink > 0 })
    }

    /// Returns the device, or `None` if the file has no name any more.
    pub(super) fn named_device(self) -> Option<u64> {
        self.has_name.then_some(self.device)
    }
}

/// Opens a file until it is one that has a name. Blocks.
pub(super) fn open_named<T>(
    mut open: impl FnMut() -> io::Result<(OwnedFd, T)>,
) -> io::Result<(OwnedFd, T, OpenedFile)> {
    let mut removed = None;
    for _ in 1..TRIES {
        match open() {
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {}
            opened => {
                let (fd, more) = opened?;
                let file = OpenedFile::new(&fd)?;
                let number = (file.device, file.inode);
                // Some file systems do not count names. There the name leads to the same file again.
                if file.has_name || removed == Some(number) {
                    return Ok((fd, more, file));
                }
                removed = Some(number);
                continue;
            }
        }
        std::thread::sleep(INTERVAL);
    }
    let (fd, more) = open()?;
    let file = OpenedFile::new(&fd)?;
    Ok((fd, more, file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn a_file_without_a_name_is_opened_again() {
        let path = std::env::temp_dir().join(format!("scalla-opening-{}", std::process::id()));
        let mut opens = 0;
        let (_, number, file) = open_named(|| {
            opens += 1;
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
            match opens {
                1 => Err(Errno::AGAIN.into()),
                2 => {
                    // Another file has the number of this one while it is open.
                    std::fs::remove_file(&path)?;
                    Ok((file.into(), opens))
                }
                _ => Ok((file.into(), opens)),
            }
        })
        .unwrap();
        assert!(file.has_name && number >= 3, "{number}");
        std::fs::remove_file(&path).unwrap();
        let directory = open_named(|| Ok((File::open(std::env::temp_dir())?.into(), ()))).map(|_| ());
        assert_eq!(directory.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }
}
