//! Files of this machine, as source and as target.
//!
//! A target is written under another name beside its own, and gets its own when it is whole: what lies under the name
//! that was asked for is never half a file. Calls here block; they are made on the threads of [`Disk`](super::disk).

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{RenameFlags, SeekFrom};

use super::failure::CopyError;
use super::options::CopyOptions;
use crate::blocks::Blocks;

/// Zeros of so many bytes, at a multiple of it, become a hole.
pub(super) const HOLE_BYTES: usize = 64 * 1024;
/// Most pieces of a file with holes that are looked at one by one.
const EXTENTS_MAX: usize = 100_000;
/// Bytes that are read back at once.
const SUM_BYTES: usize = 1024 * 1024;
/// Longest name to which something is added; file systems take 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// Times and permission bits that a copy keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    /// Seconds since the epoch, and nanoseconds where the place knows them.
    pub(super) modified: (i64, u32),
    pub(super) accessed: (i64, u32),
    pub(super) mode: Option<u32>,
}

/// A file to read.
pub(super) struct LocalSource {
    file: File,
    path: PathBuf,
    pub(super) size: u64,
    pub(super) kept: Kept,
    /// A file with a size, not a pipe or a device.
    pub(super) regular: bool,
}

impl LocalSource {
    pub(super) fn open(path: &Path) -> Result<Self, CopyError> {
        let fail = |error| CopyError::local("open", path, &error);
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(CopyError::IsDirectory(path.display().to_string()));
        }
        let part = |seconds, nanos: i64| (seconds, u32::try_from(nanos).unwrap_or(0));
        let kept = Kept {
            modified: part(meta.mtime(), meta.mtime_nsec()),
            accessed: part(meta.atime(), meta.atime_nsec()),
            mode: Some(meta.mode() & 0o7777),
        };
        Ok(Self { path: path.to_owned(), size: meta.len(), kept, regular: meta.is_file(), file })
    }

    /// The parts that hold data, from byte `from` on; everything where the file system does not tell.
    pub(super) fn extents(&self, from: u64) -> Vec<Range<u64>> {
        let whole = || std::iter::once(from..self.size).collect();
        let mut found = Vec::new();
        let mut at = from;
        while at < self.size {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                // Nothing but a hole up to the end.
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => return whole(),
            };
            let Ok(end) = rustix::fs::seek(&self.file, SeekFrom::Hole(start)) else { return whole() };
            if end <= start || found.len() >= EXTENTS_MAX {
                return whole();
            }
            found.push(start..end.min(self.size));
            at = end;
        }
        found
    }

    /// Reads `length` bytes from `offset`, fewer only at the end.
    pub(super) fn read(&self, offset: u64, length: usize, blocks: &Blocks) -> Result<Bytes, CopyError> {
        let mut block = blocks.take(length);
        while block.len() < length {
            let at = offset + block.len() as u64;
            let spare = rustix::buffer::spare_capacity(block.data());
            match rustix::io::pread(&self.file, spare, at) {
                Ok(0) => break,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(CopyError::local("read", &self.path, &error.into())),
            }
        }
        // There may have been more room than was asked for.
        block.data().truncate(length);
        Ok(block.into_bytes())
    }

    /// The next bytes of a pipe or device; none at its end.
    pub(super) fn read_next(&self, length: usize, blocks: &Blocks) -> Result<Bytes, CopyError> {
        read_stream(&self.file, &self.path, length, blocks)
    }
}

/// Fills a block from a stream as far as it goes.
pub(super) fn read_stream(
    file: impl rustix::fd::AsFd,
    name: &Path,
    length: usize,
    blocks: &Blocks,
) -> Result<Bytes, CopyError> {
    let mut block = blocks.take(length);
    while block.len() < length {
        let room = rustix::buffer::spare_capacity(block.data());
        match rustix::io::read(file.as_fd(), room) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(CopyError::local("read", name, &error.into())),
        }
    }
    Ok(block.into_bytes())
}

/// A file that is being written.
pub(super) struct LocalTarget {
    file: File,
    /// Its name when it is whole.
    path: PathBuf,
    /// Its name until then; `None` when that is the same.
    temporary: Option<PathBuf>,
    force: bool,
    /// What there is stays when the copy fails.
    keep: bool,
    /// It is a file, not a device or a pipe.
    regular: bool,
    finished: bool,
    /// How far it was written; holes behind that are made by setting the size.
    written_to: u64,
}

/// Where an earlier copy stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left {
    pub(super) bytes: u64,
    /// It was written in order by us, so all of it is there.
    pub(super) in_order: bool,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl LocalTarget {
    /// Makes it, or opens what an earlier copy left if `options` say so.
    pub(super) fn create(path: &Path, options: &CopyOptions) -> Result<(Self, Option<Left>), CopyError> {
        let fail = |error| CopyError::local("create", path, &error);
        // A link stays one: what it leads to is replaced.
        let path = match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => fs::canonicalize(path).map_err(fail)?,
            _ => path.to_owned(),
        };
        let there = match fs::metadata(&path) {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if let Some(meta) = &there {
            if meta.is_dir() {
                return Err(CopyError::IsDirectory(path.display().to_string()));
            }
            if !meta.is_file() {
                let file = OpenOptions::new().write(true).open(&path).map_err(fail)?;
                return Ok((Self::over(file, path, None, options, false), None));
            }
            if options.resume {
                let file = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
                let left = Left { bytes: meta.len(), in_order: false };
                return Ok((Self::over(file, path, None, options, true), Some(left)));
            }
            if !options.force {
                return Err(CopyError::Exists(path.display().to_string()));
            }
        }
        Self::make(path, there.as_ref(), options)
    }

    fn make(
        path: PathBuf,
        there: Option<&fs::Metadata>,
        options: &CopyOptions,
    ) -> Result<(Self, Option<Left>), CopyError> {
        let fail = |error| CopyError::local("create", &path, &error);
        if options.in_place {
            let mut how = OpenOptions::new();
            how.read(true).write(true).create(true).truncate(true);
            let file = how.open(&path).map_err(fail)?;
            return Ok((Self::over(file, path, None, options, true), None));
        }
        if options.resume {
            let part = beside(&path, ".part");
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&part)
                .map_err(fail)?;
            let bytes = file.metadata().map_err(fail)?.len();
            let left = (bytes > 0).then_some(Left { bytes, in_order: true });
            return Ok((Self::over(file, path, Some(part), options, true), left));
        }
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = beside(&path, &format!(".{}-{number}.tmp", std::process::id()));
            let mut how = OpenOptions::new();
            how.read(true).write(true).create_new(true);
            match how.mode(there.map_or(0o666, fs::Metadata::mode)).open(&name) {
                Ok(file) => return Ok((Self::over(file, path, Some(name), options, true), None)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(fail(error)),
            }
        }
    }

    fn over(
        file: File,
        path: PathBuf,
        temporary: Option<PathBuf>,
        options: &CopyOptions,
        regular: bool,
    ) -> Self {
        let keep = options.resume || temporary.is_none();
        Self { file, path, temporary, force: options.force, keep, regular, finished: false, written_to: 0 }
    }

    pub(super) fn fail(&self, operation: &'static str, error: &io::Error) -> CopyError {
        CopyError::local(operation, &self.path, error)
    }

    /// Goes on behind `bytes` that are there.
    pub(super) fn keep_first(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.file.set_len(bytes).map_err(|error| self.fail("truncate", &error))?;
        self.written_to = bytes;
        Ok(())
    }

    /// Reads back what is there.
    pub(super) fn read_back(&self, offset: u64, into: &mut [u8]) -> Result<usize, CopyError> {
        let mut got = 0;
        while let Some(rest) = into.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + got as u64) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail("read", &error)),
            }
        }
        Ok(got)
    }

    /// Adds the first `bytes` to sums.
    pub(super) fn sum_up(
        self,
        bytes: u64,
        mut sums: Vec<digest::Running>,
    ) -> Result<(Self, Vec<digest::Running>), CopyError> {
        let mut buffer = vec![0; if sums.is_empty() { 0 } else { SUM_BYTES }];
        let mut at = 0;
        while at < bytes && !sums.is_empty() {
            let length = usize::try_from(bytes - at).unwrap_or(SUM_BYTES).min(SUM_BYTES);
            let piece = buffer.get_mut(..length).unwrap_or_default();
            if self.read_back(at, piece)? < length {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(self.fail("read", &error));
            }
            sums.iter_mut().for_each(|sum| sum.update(piece));
            at += length as u64;
        }
        Ok((self, sums))
    }

    /// The same of all there is, which may end in a hole.
    pub(super) fn sum_up_all(
        mut self,
        size: u64,
        sums: Vec<digest::Running>,
    ) -> Result<(Self, Vec<digest::Running>), CopyError> {
        if sums.is_empty() {
            return Ok((self, sums));
        }
        if self.written_to != size {
            self.file.set_len(size).map_err(|error| self.fail("truncate", &error))?;
            self.written_to = size;
        }
        self.sum_up(size, sums)
    }

    /// Writes at a place; what is all zeros becomes a hole.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), CopyError> {
        if !self.regular {
            use std::io::Write;
            return (&self.file).write_all(data).map_err(|error| self.fail("write", &error));
        }
        let mut from = 0;
        while from < data.len() {
            let (length, zero) = run(offset + from as u64, data.get(from..).unwrap_or_default());
            if !zero {
                let piece = data.get(from..from + length).unwrap_or_default();
                self.file
                    .write_all_at(piece, offset + from as u64)
                    .map_err(|error| self.fail("write", &error))?;
                self.written_to = self.written_to.max(offset + (from + length) as u64);
            }
            from += length;
        }
        Ok(())
    }

    /// Writes at a place again, where something else may lie.
    pub(super) fn rewrite(&mut self, offset: u64, data: &[u8]) -> Result<(), CopyError> {
        self.file.write_all_at(data, offset).map_err(|error| self.fail("write", &error))?;
        self.written_to = self.written_to.max(offset + data.len() as u64);
        Ok(())
    }

    /// Whether it is a file, not a device or a pipe.
    pub(super) fn is_regular(&self) -> bool {
        self.regular
    }

    /// Gives it its size, its times, and its name.
    pub(super) fn finish(mut self, size: u64, kept: Option<Kept>) -> Result<(), CopyError> {
        if self.regular {
            if self.written_to != size {
                self.file.set_len(size).map_err(|error| self.fail("truncate", &error))?;
            }
            if let Some(kept) = kept {
                self.keep_times(kept)?;
            }
        }
        self.name_it()?;
        self.finished = true;
        Ok(())
    }

    fn keep_times(&self, kept: Kept) -> Result<(), CopyError> {
        if let Some(mode) = kept.mode {
            let mode = fs::Permissions::from_mode(mode & 0o777);
            self.file.set_permissions(mode).map_err(|error| self.fail("chmod", &error))?;
        }
        let time = |(seconds, nanos): (i64, u32)| {
            let whole = Duration::new(seconds.unsigned_abs(), 0);
            let base = SystemTime::UNIX_EPOCH;
            let at = if seconds < 0 { base.checked_sub(whole) } else { base.checked_add(whole) };
            at.and_then(|at| at.checked_add(Duration::from_nanos(u64::from(nanos)))).unwrap_or(base)
        };
        let times = FileTimes::new().set_modified(time(kept.modified)).set_accessed(time(kept.accessed));
        self.file.set_times(times).map_err(|error| self.fail("utimes", &error))
    }

    fn name_it(&self) -> Result<(), CopyError> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        if !self.force {
            let (here, flags) = (rustix::fs::CWD, RenameFlags::NOREPLACE);
            match rustix::fs::renameat_with(here, temporary, here, &self.path, flags) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::EXIST) => {
                    return Err(CopyError::Exists(self.path.display().to_string()));
                }
                // The file system cannot; whoever makes the file at this very moment loses it.
                Err(_) if self.path.exists() => {
                    return Err(CopyError::Exists(self.path.display().to_string()));
                }
                Err(_) => {}
            }
        }
        fs::rename(temporary, &self.path).map_err(|error| self.fail("rename", &error))
    }

    /// What is not whole in order up to here goes: the next copy takes everything before its end for good.
    pub(super) fn leave(mut self, whole_to: u64) {
        if self.keep && self.regular && self.temporary.is_some() {
            if whole_to == 0 {
                self.keep = false;
            } else {
                // Failing that, the part is of no use and goes.
                self.keep = self.file.set_len(whole_to).is_ok();
            }
        }
    }
}

impl Drop for LocalTarget {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary
            && !self.finished
            && !self.keep
        {
            // Nothing can be done about a file that cannot be removed.
            fs::remove_file(temporary).ok();
        }
    }
}

/// A name beside `path`.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = if name.len() + ending.len() > NAME_BYTES_MAX {
        // The same long name must lead to the same short one.
        format!(".{:08x}{ending}", digest::crc32c(name.as_bytes()))
    } else {
        format!(".{name}{ending}")
    };
    path.with_file_name(name)
}

/// How many bytes from here on are data, or zeros that a hole can hold.
fn run(offset: u64, data: &[u8]) -> (usize, bool) {
    let to_grain = |at: u64| HOLE_BYTES - (at % HOLE_BYTES as u64) as usize;
    let mut end = to_grain(offset).min(data.len());
    let zero = end == HOLE_BYTES && is_zero(data.get(..end).unwrap_or_default());
    while end < data.len() {
        let next = data.get(end..data.len().min(end + HOLE_BYTES)).unwrap_or_default();
        if (next.len() == HOLE_BYTES && is_zero(next)) != zero {
            break;
        }
        end += next.len();
    }
    (end, zero)
}

/// Whether there is nothing but zeros; data mostly shows within its first bytes.
pub(super) fn is_zero(data: &[u8]) -> bool {
    let (words, rest) = data.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("scalla-copy-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn options() -> CopyOptions {
        CopyOptions::of(&Settings::default())
    }

    #[test]
    fn a_half_file_is_never_seen_under_the_name() {
        let folder = Folder::new("half");
        let path = folder.0.join("file");
        let (mut target, _) = LocalTarget::create(&path, &options()).unwrap();
        target.write(0, b"half").unwrap();
        assert!(!path.exists() && folder.names().len() == 1);
        drop(target);
        assert_eq!(folder.names(), [""; 0]);
        let (mut target, _) = LocalTarget::create(&path, &options()).unwrap();
        target.write(0, b"whole").unwrap();
        target.finish(5, None).unwrap();
        assert_eq!((folder.names(), fs::read(&path).unwrap()), (vec!["file".to_owned()], b"whole".to_vec()));
    }

    #[test]
    fn what_is_there_is_kept_without_force_even_when_it_came_meanwhile() {
        let folder = Folder::new("force");
        let path = folder.0.join("file");
        let (target, _) = LocalTarget::create(&path, &options()).unwrap();
        fs::write(&path, b"precious").unwrap();
        assert!(matches!(target.finish(0, None), Err(CopyError::Exists(_))));
        assert!(matches!(LocalTarget::create(&path, &options()), Err(CopyError::Exists(_))));
        assert_eq!(folder.names(), ["file"]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let forced = CopyOptions { force: true, ..options() };
        let (mut target, _) = LocalTarget::create(&path, &forced).unwrap();
        target.write(0, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        target.finish(3, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_part_is_left_in_order_and_found_again() {
        let folder = Folder::new("part");
        let path = folder.0.join("file");
        let resuming = CopyOptions { resume: true, ..options() };
        let (mut target, left) = LocalTarget::create(&path, &resuming).unwrap();
        assert_eq!(left, None);
        target.write(0, b"0123456789").unwrap();
        target.leave(7);
        assert_eq!(folder.names(), [".file.part"]);
        let (mut target, left) = LocalTarget::create(&path, &resuming).unwrap();
        assert_eq!(left, Some(Left { bytes: 7, in_order: true }));
        target.keep_first(5).unwrap();
        target.write(5, b"abc").unwrap();
        target.finish(8, None).unwrap();
        assert_eq!(
            (folder.names(), fs::read(&path).unwrap()),
            (vec!["file".to_owned()], b"01234abc".to_vec())
        );
    }

    #[test]
    fn zeros_become_holes_and_holes_are_found() {
        let folder = Folder::new("holes");
        let path = folder.0.join("file");
        let mut data = vec![0; 10 * HOLE_BYTES + 5];
        data[3 * HOLE_BYTES + 1] = 1;
        data[7 * HOLE_BYTES] = 1;
        let (mut target, _) = LocalTarget::create(&path, &options()).unwrap();
        // Chunks that do not begin at multiples of a hole's bytes.
        let chunk = 3 * HOLE_BYTES + 7;
        for (index, piece) in data.chunks(chunk).enumerate() {
            target.write((index * chunk) as u64, piece).unwrap();
        }
        target.finish(data.len() as u64, None).unwrap();
        assert!(fs::read(&path).unwrap() == data);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 6 * HOLE_BYTES as u64);
        let extents = LocalSource::open(&path).unwrap().extents(0);
        assert!(
            extents.iter().all(|extent| extent.end - extent.start < 5 * HOLE_BYTES as u64),
            "{extents:?}"
        );
    }

    #[test]
    fn times_and_permission_bits_are_kept() {
        let folder = Folder::new("times");
        let path = folder.0.join("file");
        let kept = Kept { modified: (1_700_000_000, 5), accessed: (-7, 0), mode: Some(0o4750) };
        let (target, _) = LocalTarget::create(&path, &options()).unwrap();
        target.finish(0, Some(kept)).unwrap();
        let again = LocalSource::open(&path).unwrap();
        assert_eq!((again.kept.modified, again.kept.mode), ((1_700_000_000, 5), Some(0o750)));
        assert_eq!(fs::metadata(&path).unwrap().atime(), -7);
    }

    #[test]
    fn long_names_get_short_ones_beside_them() {
        let long = PathBuf::from("/d").join("n".repeat(255));
        assert!(beside(&long, ".part").file_name().unwrap().len() < 30);
        assert_eq!(beside(&long, ".part"), beside(&long, ".part"));
        assert_eq!(beside(Path::new("/d/a"), ".part"), Path::new("/d/.a.part"));
    }
}
