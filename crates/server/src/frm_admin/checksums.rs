//! `chksum`: the stored checksums of files.

use super::words::{CommandOption, CommandWords, parse_path};
use super::{CommandRun, CommandStep, FrmAdmin, attributes, error_text};
use base::LogicalPath;
use digest::{Algorithm, Checksum, ChecksumRecord, RunningChecksum};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use storage::{Backend as _, Metadata, OpenMode};

const OPTIONS: [CommandOption; 4] = [
    CommandOption::switch("force"),
    CommandOption::switch("pfn"),
    CommandOption::valued("type"),
    CommandOption::switch("verbose"),
];

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// What to do.
enum Function {
    Calculate,
    List,
    Set(Checksum),
    Unset,
    Verify(Checksum),
}

impl FrmAdmin {
    /// Returns the checksum that is stored with a file, and whether it is valid.
    fn stored_checksum(
        &self,
        path: &LogicalPath,
        algorithm: Algorithm,
        status: &Metadata,
    ) -> io::Result<Option<(Checksum, bool)>> {
        let value = self.attribute(path, &ChecksumRecord::attribute(algorithm))?;
        let record = value.and_then(|value| ChecksumRecord::decode(&value));
        let record = record.filter(|record| record.checksum.algorithm() == algorithm);
        let fits =
            |record: &ChecksumRecord| record.fits(status.modified, status.modified_nanoseconds, status.size);
        Ok(record.map(|record| (record.checksum, fits(&record))))
    }

    /// Reads a file, and returns its checksum with the status that it belongs to.
    fn read_checksum(&self, path: &LogicalPath, algorithm: Algorithm) -> io::Result<(Checksum, Metadata)> {
        let file = self.posix.open(path, &OpenMode { write: false, truncate: false, create: None })?;
        let before = file.stat()?;
        let (mut sum, mut buffer, mut offset) = (RunningChecksum::new(algorithm), vec![0; READ_BYTES], 0);
        loop {
            let length = file.read(offset, &mut buffer)?;
            if length == 0 {
                break;
            }
            sum.update(buffer.get(..length).unwrap_or_default());
            offset += length as u64;
        }
        let after = file.stat()?;
        let key = |status: &Metadata| (status.size, status.modified, status.modified_nanoseconds);
        if key(&before) != key(&after) || offset != after.size {
            return Err(io::Error::other("it was changed meanwhile"));
        }
        Ok((sum.finish(), after))
    }

    /// Stores a checksum of a file with this status.
    fn store_checksum(&self, path: &LogicalPath, sum: Checksum, status: &Metadata) -> io::Result<()> {
        let record = ChecksumRecord::new(sum, status.modified, attributes::now())
            .of_file(status.size, status.modified_nanoseconds);
        let file = self.hold(path)?;
        file.set_attribute(&ChecksumRecord::attribute(sum.algorithm()), &record.encode())
    }
}

impl CommandRun<'_> {
    /// `chksum {calc | ls | set VALUE | unset | ver VALUE} FILE`.
    pub(super) fn checksum(&mut self, words: &mut CommandWords<'_>) -> CommandStep {
        let options = self.options(words, &OPTIONS)?;
        let chosen = options.value("type");
        let configured = self.admin.effective.protocol.checksums.offered.first().map(|kind| kind.name());
        let kind = chosen.or(configured).unwrap_or("adler32");
        let Some(algorithm) = Algorithm::from_name(kind) else {
            return self.refuse(format!("{kind} checksums are not supported."));
        };
        let Some(function) = words.text() else { return self.refuse("chksum function not specified.") };
        let value = |run: &mut Self, words: &mut CommandWords<'_>| {
            let Some(text) = words.text() else { return run.refuse("chksum target not specified.") };
            match Checksum::from_hex(algorithm, &text) {
                Some(sum) => Ok(sum),
                None => run.refuse(format!("Invalid {kind} checksum value - {text}")),
            }
        };
        let work = match function.as_str() {
            "calc" => Function::Calculate,
            "ls" => Function::List,
            "set" => Function::Set(value(self, words)?),
            "unset" => Function::Unset,
            "ver" | "verify" => Function::Verify(value(self, words)?),
            _ => return self.refuse(format!("Unknown chksum function - {function}")),
        };
        let Some(word) = words.next() else { return self.refuse("chksum target not specified.") };
        let path = if options.has("pfn") { self.path_of_local(word)? } else { self.parsed(word)? };
        if !self.is_file(&path) {
            return Ok(());
        }
        let done = match work {
            Function::List => self.list_checksums(&path),
            Function::Calculate => {
                self.calculate(&path, algorithm, options.has("force"), options.has("verbose"))
            }
            Function::Set(sum) => self.set_checksum(&path, sum),
            Function::Unset => self.unset_checksum(&path, algorithm),
            Function::Verify(sum) => self.verify_checksum(&path, sum, options.has("force")),
        };
        if let Err(error) = done {
            self.fail(format!("Unable to {function} {kind} checksum; {}", error_text(&error)));
        }
        Ok(())
    }

    fn parsed(&mut self, word: &[u8]) -> CommandStep<LogicalPath> {
        match parse_path(word) {
            Ok(path) => Ok(path),
            Err(text) => self.refuse(text),
        }
    }

    fn path_of_local(&mut self, word: &[u8]) -> CommandStep<LogicalPath> {
        let local = Path::new(OsStr::from_bytes(word));
        match self.admin.logical_path(local) {
            Some(path) => Ok(path),
            None => self.refuse(format!("{} is not below oss.localroot", super::shown_bytes(word))),
        }
    }

    fn list_checksums(&mut self, path: &LogicalPath) -> io::Result<()> {
        let status = self.admin.posix.stat(path)?;
        let mut has_any = false;
        for algorithm in Algorithm::ALL {
            if let Some((sum, is_valid)) = self.admin.stored_checksum(path, algorithm, &status)? {
                has_any = true;
                let stale = if is_valid { "" } else { " (stale)" };
                self.message(format!("{algorithm} {} {}{stale}", sum.hex(), path.text()));
            }
        }
        if !has_any {
            self.message(format!("No checksums exist for {}", path.text()));
        }
        Ok(())
    }

    fn calculate(
        &mut self,
        path: &LogicalPath,
        algorithm: Algorithm,
        is_forced: bool,
        is_verbose: bool,
    ) -> io::Result<()> {
        let status = self.admin.posix.stat(path)?;
        let stored = self.admin.stored_checksum(path, algorithm, &status)?;
        let sum = match stored.filter(|(_, is_valid)| *is_valid && !is_forced) {
            Some((sum, _)) => sum,
            None => {
                let (sum, status) = self.admin.read_checksum(path, algorithm)?;
                self.admin.store_checksum(path, sum, &status)?;
                if is_verbose {
                    self.message(format!("{} bytes read", status.size));
                }
                sum
            }
        };
        self.message(format!("{algorithm} {} {}", sum.hex(), path.text()));
        Ok(())
    }

    fn set_checksum(&mut self, path: &LogicalPath, sum: Checksum) -> io::Result<()> {
        let status = self.admin.posix.stat(path)?;
        self.admin.store_checksum(path, sum, &status)?;
        self.message(format!("{} {} {}", sum.algorithm(), sum.hex(), path.text()));
        Ok(())
    }

    fn unset_checksum(&mut self, path: &LogicalPath, algorithm: Algorithm) -> io::Result<()> {
        let file = self.admin.hold(path)?;
        file.remove_attribute(&ChecksumRecord::attribute(algorithm))
    }

    /// Compares a checksum with the one that is stored, or with the one of the content if none is stored or
    /// `reads` is set.
    fn verify_checksum(&mut self, path: &LogicalPath, wanted: Checksum, reads: bool) -> io::Result<()> {
        let algorithm = wanted.algorithm();
        let status = self.admin.posix.stat(path)?;
        let stored = self.admin.stored_checksum(path, algorithm, &status)?;
        let found = match stored.filter(|(_, is_valid)| *is_valid && !reads) {
            Some((sum, _)) => sum,
            None => self.admin.read_checksum(path, algorithm)?.0,
        };
        if found == wanted {
            self.message(format!("{algorithm} {} {} verified", wanted.hex(), path.text()));
        } else {
            self.fail(format!(
                "{algorithm} checksum of {} is {} and not {}",
                path.text(),
                found.hex(),
                wanted.hex()
            ));
        }
        Ok(())
    }
}
