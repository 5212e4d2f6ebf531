//! Files of this machine as targets.
//!
//! A target is written under a temporary name beside its own, and is renamed once it is complete.
//! The requested name therefore never belongs to a partial file. Calls here block; they are made on
//! the threads of [`Disk`](super::disk).

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use super::failure::CopyError;
use super::holes::next_run;
use super::local_source::LocalId;
use super::metadata::PreservedMetadata;
use super::note::{Note, Noted, boot, lock};
use super::options::CopyOptions;
use super::publish::{PART, PART_NOTE, beside, is_part_name, rename, sync_file, sync_name};
use crate::path::shown_path;

/// Bytes that are read back at a time.
const SUM_BYTES: usize = 1024 * 1024;

/// A file that is being written.
pub(super) struct LocalTarget {
    file: File,
    /// The final name.
    path: PathBuf,
    /// The temporary name; `None` if it is written under its final name.
    temporary: Option<PathBuf>,
    force: bool,
    /// Set if the written part is kept when the copy fails.
    keep: bool,
    /// Set for a regular file, which is not a device or a pipe.
    regular: bool,
    finished: bool,
    /// The end of the written data. Holes behind it are made by setting the size.
    written_to: u64,
    /// Set if data and name are synced to stable storage before the copy counts as complete.
    sync: bool,
    /// The record about the part, for the copy that completes it.
    note: Option<Note>,
}

/// The remainder of an earlier copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Left {
    pub(super) bytes: u64,
    /// The content of its note, if there is one for this very file.
    pub(super) noted: Option<Noted>,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl LocalTarget {
    /// Creates the target, or opens the remainder of an earlier copy if `options` require it. The
    /// open `source` is not overwritten, whatever the path leads to by now.
    pub(super) fn create(
        path: &Path,
        options: &CopyOptions,
        source: Option<LocalId>,
    ) -> Result<(Self, Option<Left>), CopyError> {
        let fail = |error| CopyError::local("create", path, &error);
        // A link is kept, and the file to which it leads is replaced.
        let path = match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => fs::canonicalize(path).map_err(fail)?,
            _ => path.to_owned(),
        };
        if options.resume && !options.recorded_only && is_part_name(&path) {
            // The copy of that other target would take this file for its part.
            return Err(CopyError::PartName(shown_path(&path).into_owned()));
        }
        let there = match fs::metadata(&path) {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if let Some(meta) = &there {
            if meta.is_dir() {
                return Err(CopyError::IsDirectory(shown_path(&path).into_owned()));
            }
            if !meta.is_file() {
                let file = OpenOptions::new().write(true).open(&path).map_err(fail)?;
                return Ok((Self::over(file, path, None, options, false), None));
            }
            if options.resume && !options.recorded_only && !options.force {
                let file = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
                not_the_source(&file, &path, source)?;
                if !lock(&file) {
                    return Err(CopyError::InUse(shown_path(&path).into_owned()));
                }
                // It may belong to anyone, and anyone may have changed it since it was left.
                let left = Left { bytes: meta.len(), noted: None };
                return Ok((Self::over(file, path, None, options, true), Some(left)));
            }
            if !options.force {
                return Err(CopyError::Exists(shown_path(&path).into_owned()));
            }
        }
        Self::make(path, there.as_ref(), options, source)
    }

    fn make(
        path: PathBuf,
        there: Option<&fs::Metadata>,
        options: &CopyOptions,
        source: Option<LocalId>,
    ) -> Result<(Self, Option<Left>), CopyError> {
        let fail = |error| CopyError::local("create", &path, &error);
        if options.in_place {
            let mut how = OpenOptions::new();
            // It is truncated once it is known not to be the source.
            how.read(true).write(true).create(true).truncate(false);
            let file = how.open(&path).map_err(fail)?;
            not_the_source(&file, &path, source)?;
            if file.metadata().is_ok_and(|meta| meta.is_file()) {
                file.set_len(0).map_err(fail)?;
            }
            return Ok((Self::over(file, path, None, options, true), None));
        }
        let anew;
        let mut options = options;
        if options.resume {
            let is_refused = options.recorded_only && is_part_name(&path);
            if !is_refused && let Some(opened) = Self::open_part(&path, options)? {
                return Ok(opened);
            }
            anew = CopyOptions { resume: false, ..options.clone() };
            options = &anew;
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

    /// Opens the part of an earlier copy, or creates one. Returns `None` if a file has the name of the
    /// part and no record shows that it is one, if `options` require a record.
    fn open_part(path: &Path, options: &CopyOptions) -> Result<Option<(Self, Option<Left>)>, CopyError> {
        let fail = |error| CopyError::local("create", path, &error);
        let part = beside(path, PART);
        let Some(note) = Note::open(&beside(path, PART_NOTE)).map_err(fail)? else {
            return Err(CopyError::InUse(shown_path(path).into_owned()));
        };
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let (file, is_new) = match how.clone().create_new(true).open(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match how.open(&part) {
                // It may be a link.
                Err(_) if options.recorded_only => return Ok(None),
                opened => (opened.map_err(fail)?, false),
            },
            created => (created.map_err(fail)?, true),
        };
        let meta = file.metadata().map_err(fail)?;
        let (bytes, own) = (meta.len(), LocalId::of(&meta).to_string());
        let noted = note.read().filter(|noted| noted.target == own);
        // A part is written in order. Until the system restarts, all of it is there.
        let noted = noted.map(|noted| match !noted.boot.is_empty() && noted.boot == boot() {
            true => Noted { written: bytes, ..noted },
            false => noted,
        });
        if options.recorded_only && !is_new && noted.is_none() {
            return Ok(None);
        }
        let left = (bytes > 0).then_some(Left { bytes, noted });
        let mut target = Self::over(file, path.to_owned(), Some(part), options, true);
        target.note = Some(note);
        Ok(Some((target, left)))
    }

    fn over(
        file: File,
        path: PathBuf,
        temporary: Option<PathBuf>,
        options: &CopyOptions,
        regular: bool,
    ) -> Self {
        let keep = options.resume || temporary.is_none();
        let (force, sync) = (options.force, options.sync);
        let (finished, written_to, note) = (false, 0, None);
        Self { file, path, temporary, force, keep, regular, finished, written_to, sync, note }
    }

    pub(super) fn fail(&self, operation: &'static str, error: &io::Error) -> CopyError {
        CopyError::local(operation, &self.path, error)
    }

    /// Continues behind the first `bytes` that exist.
    pub(super) fn keep_first(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.file.set_len(bytes).map_err(|error| self.fail("truncate", &error))?;
        self.written_to = bytes;
        Ok(())
    }

    /// Records the source of the part before any data is written. A record without a source shows only
    /// that the file is a part.
    pub(super) fn begin(&self, source: Option<&str>) -> Result<(), CopyError> {
        let Some(note) = &self.note else { return Ok(()) };
        let noted = self.noted(source.unwrap_or_default().to_owned(), 0).and_then(|noted| note.write(&noted));
        noted.map_err(|error| self.fail("note", &error))
    }

    fn noted(&self, source: String, written: u64) -> io::Result<Noted> {
        Ok(Noted { source, target: LocalId::of(&self.file.metadata()?).to_string(), written, boot: boot() })
    }

    /// Reads back written data.
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

    /// Adds the first `bytes` to checksums.
    pub(super) fn sum_up(
        self,
        bytes: u64,
        mut sums: Vec<digest::RunningChecksum>,
    ) -> Result<(Self, Vec<digest::RunningChecksum>), CopyError> {
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

    /// Adds all data to checksums, including a hole at its end.
    pub(super) fn sum_up_all(
        mut self,
        size: u64,
        sums: Vec<digest::RunningChecksum>,
    ) -> Result<(Self, Vec<digest::RunningChecksum>), CopyError> {
        if sums.is_empty() {
            return Ok((self, sums));
        }
        if self.written_to != size {
            self.file.set_len(size).map_err(|error| self.fail("truncate", &error))?;
            self.written_to = size;
        }
        self.sum_up(size, sums)
    }

    /// Writes data at an offset; zeros become holes.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), CopyError> {
        if !self.regular {
            use std::io::Write;
            return (&self.file).write_all(data).map_err(|error| self.fail("write", &error));
        }
        let mut from = 0;
        while from < data.len() {
            let (length, zero) = next_run(offset + from as u64, data.get(from..).unwrap_or_default());
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

    /// Overwrites data at an offset.
    pub(super) fn rewrite(&mut self, offset: u64, data: &[u8]) -> Result<(), CopyError> {
        self.file.write_all_at(data, offset).map_err(|error| self.fail("write", &error))?;
        self.written_to = self.written_to.max(offset + data.len() as u64);
        Ok(())
    }

    /// Reports whether the target is a regular file, not a device or a pipe.
    pub(super) fn is_regular(&self) -> bool {
        self.regular
    }

    /// Sets the size and times, and renames the file to its final name.
    pub(super) fn finish(mut self, size: u64, kept: Option<PreservedMetadata>) -> Result<(), CopyError> {
        if self.regular {
            if self.written_to != size {
                self.file.set_len(size).map_err(|error| self.fail("truncate", &error))?;
            }
            if let Some(kept) = kept {
                self.keep_times(kept)?;
            }
        }
        if self.regular && self.sync {
            sync_file(&self.file, &self.path)?;
        }
        let Some(temporary) = &self.temporary else {
            self.finished = true;
            return if self.regular && self.sync { sync_name(&self.path) } else { Ok(()) };
        };
        // A part without a note is compared as a whole. A note without its part could be taken for
        // the note of another file.
        if let Some(note) = &self.note {
            note.remove();
            self.check_part(temporary)?;
        }
        rename(temporary, &self.path, self.force)?;
        self.finished = true;
        if self.sync { sync_name(&self.path) } else { Ok(()) }
    }

    /// Checks that the file with the name of the part is still this one. A copy to that name replaces it.
    fn check_part(&self, part: &Path) -> Result<(), CopyError> {
        let own = self.file.metadata().map_err(|error| self.fail("stat", &error))?;
        let named = fs::symlink_metadata(part).map_err(|error| self.fail("stat", &error))?;
        if LocalId::of(&named) == LocalId::of(&own) {
            return Ok(());
        }
        let text = format!("another file has replaced its part {}; copy it again", shown_path(part));
        Err(self.fail("rename", &io::Error::other(text)))
    }

    fn keep_times(&self, kept: PreservedMetadata) -> Result<(), CopyError> {
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

    /// Truncates the file to its complete first bytes. The next copy continues there.
    pub(super) fn leave(mut self, whole_to: u64) {
        if !self.keep || !self.regular || self.temporary.is_none() {
            return;
        }
        // If that fails, the part is useless and is removed.
        self.keep = whole_to > 0 && self.file.set_len(whole_to).is_ok();
        if let Some(note) = self.note.as_ref().filter(|_| self.keep)
            && let Some(before) = note.read()
            && self.file.sync_all().is_ok()
        {
            // Without the note, the next copy finds less written data than there is.
            self.noted(before.source, whole_to).and_then(|noted| note.write(&noted)).ok();
        }
    }
}

/// Refuses an open file that is the source.
fn not_the_source(file: &File, path: &Path, source: Option<LocalId>) -> Result<(), CopyError> {
    let Some(source) = source else { return Ok(()) };
    let meta = file.metadata().map_err(|error| CopyError::local("stat", path, &error))?;
    if LocalId::of(&meta) == source {
        let text = format!("the source and {} are the same file", shown_path(path));
        return Err(CopyError::Usage(text));
    }
    Ok(())
}

impl Drop for LocalTarget {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary
            && !self.finished
            && !self.keep
        {
            // A failure to remove the file cannot be handled.
            fs::remove_file(temporary).ok();
            if let Some(note) = &self.note {
                note.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;
