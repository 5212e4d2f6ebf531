//! The bare server: the floor with files.
//!
//! It shows the cost of the kernel for receive, read or write, and send. It has no sessions,
//! ordering, authorization or limits, and it follows every link, so it is a lower bound and not a
//! server.

use anyhow::Context;
use digest::pages;
use rustix::fs::{AtFlags, Mode, OFlags, openat, sendfile, statat};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwrite};
use std::fs::File;
use std::io::IoSliceMut;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::xroot::codes::ResponseType;
use wire::xroot::reply::status::StatusFrame;
use wire::xroot::{RequestCode, StreamId};

/// Minimum size of reads that are sent without a copy.
const SENDFILE_BYTES_MIN: usize = 16 << 10;

/// Number of pages in one frame.
const FRAME_PAGES: usize = 62;

/// The directory whose files are read.
pub(crate) struct ServedDirectory(OwnedFd);

/// State of a connection, which can open one file at a time.
#[derive(Default)]
pub(crate) struct BareFile {
    file: Option<File>,
    /// Offset and length of a range to send.
    range: Option<(u64, usize)>,
    /// Streamid, offset and length of pages to send.
    pages: Option<(StreamId, u64, usize)>,
}

impl ServedDirectory {
    pub(crate) fn open(directory: &Path) -> anyhow::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty());
        Ok(Self(directory.context("cannot open the directory to serve")?))
    }

    /// Returns the status of a path in the form of a reply.
    pub(crate) fn stat(&self, path: &[u8]) -> Option<Vec<u8>> {
        let status = statat(&self.0, relative(path), AtFlags::empty()).ok()?;
        Some(format!("{} {} 48 {}\0", status.st_ino, status.st_size, status.st_mtime).into_bytes())
    }
}

/// Returns the path relative to the directory, without CGI.
fn relative(path: &[u8]) -> &[u8] {
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let from = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    &path[from..]
}

impl BareFile {
    /// Opens a file for reading, or an unnamed file for writing. Returns whether this succeeded.
    pub(crate) fn open(&mut self, tree: &ServedDirectory, path: &[u8], writes: bool) -> bool {
        let opened = if writes {
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            openat(&tree.0, ".", flags, Mode::RUSR | Mode::WUSR)
        } else {
            openat(&tree.0, relative(path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        self.file = opened.ok().map(File::from);
        self.file.is_some()
    }

    /// Returns the size of the file.
    pub(crate) fn size(&self) -> u64 {
        self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |known| known.len())
    }

    /// Reports whether a range must be sent behind the output.
    pub(crate) fn has_range(&self) -> bool {
        self.range.is_some()
    }

    /// Appends the data of a read. A page that is not in memory becomes zeros, which does not occur
    /// in measurements.
    pub(crate) fn read(&mut self, offset: u64, length: usize, output: &mut Vec<u8>) {
        if length >= SENDFILE_BYTES_MIN && !self.has_range() {
            self.range = Some((offset, length));
            return;
        }
        let at = output.len();
        output.resize(at + length, 0);
        if let Some(file) = &self.file {
            preadv2(file, &mut [IoSliceMut::new(&mut output[at..])], offset, ReadWriteFlags::NOWAIT).ok();
        }
    }

    /// Starts a read of pages with checksums, whose frames have their own headers and are appended
    /// when the output has space ([`Self::next_pages`]).
    pub(crate) fn read_pages(&mut self, streamid: StreamId, offset: u64, length: usize) {
        self.pages = Some((streamid, offset, length));
    }

    /// Appends the next frame of pages; returns `false` if there is none.
    pub(crate) fn next_pages(&mut self, output: &mut Vec<u8>) -> bool {
        let Some((streamid, offset, left)) = self.pages.take() else { return false };
        let within = offset as usize % pages::PAGE_BYTES;
        let length = left.min(FRAME_PAGES * pages::PAGE_BYTES - within);
        let total = pages::interleaved_length(offset, length);
        let rest = left - length;
        let frame = StatusFrame {
            streamid,
            request: RequestCode::PGREAD,
            resptype: if rest == 0 { ResponseType::FINAL } else { ResponseType::PARTIAL },
            dlen: i32::try_from(total).unwrap_or(i32::MAX),
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
        };
        output.extend_from_slice(&frame.to_bytes());
        let at = output.len();
        output.resize(at + total, 0);
        let body = &mut output[at..];
        let mut behind = &mut *body;
        let mut places = Vec::with_capacity(FRAME_PAGES);
        for page in pages::pages(offset, total) {
            let (data, next) = behind[pages::CHECKSUM_BYTES..].split_at_mut(page.length);
            places.push(IoSliceMut::new(data));
            behind = next;
        }
        if let Some(file) = &self.file {
            preadv2(file, &mut places, offset, ReadWriteFlags::NOWAIT).ok();
        }
        pages::fill(offset, body);
        if rest > 0 {
            self.pages = Some((streamid, offset + length as u64, rest));
        }
        true
    }

    /// Writes a part of a payload.
    pub(crate) fn write(&self, offset: u64, piece: &[u8]) {
        if let Some(file) = &self.file {
            // Errors are ignored: a full disk shows at the compared servers.
            pwrite(file, piece, offset).ok();
        }
    }

    /// Sends the range; returns `false` if the connection must be closed.
    pub(crate) fn send_range(&mut self, socket: &TcpStream) -> bool {
        while let (Some((offset, left)), Some(file)) = (&mut self.range, &self.file) {
            match sendfile(socket, file, Some(offset), *left) {
                Ok(0) => return false,
                Ok(sent) if sent < *left => *left -= sent,
                Ok(_) => self.range = None,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
