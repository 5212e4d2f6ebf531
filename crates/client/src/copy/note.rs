//! [`Note`]: a small file beside the partial file of an unfinished copy.
//!
//! It names the source and the part, and the number of written bytes. The process that completes
//! the part holds a lock on the note, so a second process cannot write to the part. A note never
//! claims more bytes than are written. Without a note, or with a note of another source, the part
//! is compared with its source byte by byte.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The first line, with the version of the format.
const HEAD: &str = "scalla part 1";
/// Maximum size of a note that is read.
const NOTE_BYTES_MAX: u64 = 4096;
/// File with an identifier that the kernel generates at each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The content of a note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    /// The identity of the source, as in [`SourceReader`](super::source::Source).
    pub(super) source: String,
    /// The identity of the part.
    pub(super) target: String,
    /// Number of bytes from the start of the part that are written.
    pub(super) written: u64,
    /// Boot id of the system that wrote the part. Bytes written to a local file are present as long
    /// as the system runs.
    pub(super) boot: String,
}

/// An open and locked note.
#[derive(Debug)]
pub(super) struct Note {
    file: File,
    path: PathBuf,
}

/// Takes the lock of a file, which is released with its last descriptor. Returns `false` if another
/// process holds it. On a file system without locks it always succeeds.
pub(super) fn lock(file: &File) -> bool {
    !matches!(flock(file, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK))
}

/// Returns the boot id of the system; empty if it is unknown.
pub(super) fn boot() -> String {
    fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default()
}

impl Note {
    /// Opens or creates a note; `None` if another process holds its lock.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(path)?;
            if !lock(&file) {
                return Ok(None);
            }
            // The previous holder of the lock may have removed it.
            let (own, named) = (file.metadata()?, fs::symlink_metadata(path).ok());
            if named.is_some_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                return Ok(Some(Self { file, path: path.to_owned() }));
            }
        }
    }

    /// Opens the note of a target at a server, in the directory for such notes, which is created.
    pub(super) fn of_url(directory: &Path, url: &str) -> io::Result<Option<Self>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let name = digest::RunningChecksum::of(digest::Algorithm::Sha256, url.as_bytes()).hex();
        Self::open(&directory.join(name))
    }

    /// Reads the content; `None` if the file belongs to another user or is incomplete.
    pub(super) fn read(&self) -> Option<Noted> {
        let meta = self.file.metadata().ok()?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.len() > NOTE_BYTES_MAX {
            return None;
        }
        let mut text = String::new();
        (&self.file).take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        Noted::parse(&text)
    }

    /// Replaces the content.
    pub(super) fn write(&self, noted: &Noted) -> io::Result<()> {
        let text = noted.text();
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Clears the content.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Removes the note. A note that cannot be removed is cleared.
    pub(super) fn remove(&self) {
        if fs::remove_file(&self.path).is_err() {
            self.clear().ok();
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // The note is unused. After its removal another process may own a note of this name.
        if self.file.metadata().is_ok_and(|meta| meta.len() == 0 && meta.nlink() > 0) {
            fs::remove_file(&self.path).ok();
        }
    }
}

impl Noted {
    fn text(&self) -> String {
        let Self { source, target, written, boot } = self;
        let lines = format!("{HEAD}\nsource {source}\ntarget {target}\nwritten {written}\nboot {boot}\n");
        let sum = digest::crc32c(lines.as_bytes());
        format!("{lines}end {sum:08x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        value(HEAD.rsplit_once(' ')?.0).filter(|version| HEAD.ends_with(version.as_str()))?;
        let noted = Self {
            source: value("source")?,
            target: value("target")?,
            written: value("written")?.parse().ok()?,
            boot: value("boot")?,
        };
        (noted.text() == text).then_some(noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> Noted {
        let text = |text: &str| text.to_owned();
        Noted { source: text("a:1 7 8 9"), target: text("1 2"), written: 4096, boot: text("run") }
    }

    #[test]
    fn a_damaged_note_is_not_read() {
        let text = noted().text();
        assert_eq!(Noted::parse(&text), Some(noted()));
        for length in 0..text.len() {
            assert_eq!(Noted::parse(&text[..length]), None, "{length}");
        }
        assert_eq!(Noted::parse(&text.replace("written 4096", "written 8192")), None);
        assert_eq!(Noted::parse(&text.replace("part 1", "part 2")), None);
    }

    #[test]
    fn a_note_has_one_owner() {
        let directory = std::env::temp_dir().join(format!("scalla-note-{}", std::process::id()));
        let open = || Note::of_url(&directory, "root://a:1//f").unwrap();
        let note = open().unwrap();
        assert_eq!((note.read(), open().is_none()), (None, true));
        note.write(&Noted { written: 123_456_789, ..noted() }).unwrap();
        note.write(&noted()).unwrap();
        drop(note);
        let note = open().unwrap();
        assert_eq!(note.read(), Some(noted()));
        assert!(Note::of_url(&directory, "root://a:1//g").unwrap().unwrap().read().is_none());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "what was not begun leaves no note");
        note.remove();
        // Another file has the name now, even if a process still holds the old one.
        assert_eq!(open().unwrap().read(), None);
        fs::remove_dir_all(&directory).unwrap();
    }
}
