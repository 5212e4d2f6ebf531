//! A log file that is rotated at local midnight, and the retention of old ones.
//!
//! At midnight `xrootd.log` becomes `xrootd.log.YYYYMMDD`, with `.1`, `.2`, … if that name is
//! taken. `writer` calls it from its own thread, because each of these operations may block.

use jiff::Zoned;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use storage::SharedDirectory;

/// Mode of the directory of a log if it is created.
const DIRECTORY_MODE: u32 = 0o755;

/// The retention of old log files (`-k`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Retention {
    /// Rotates at midnight and keeps all old files.
    #[default]
    All,
    /// Rotates at midnight and keeps this number of old files.
    Files(u64),
    /// Rotates at midnight and keeps old files up to this number of bytes in total.
    Bytes(u64),
    /// Another program moves the file away and sends SIGHUP (`-k sighup`).
    External,
}

/// A text that is not a valid retention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetentionError(String);

impl std::fmt::Display for RetentionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` is not a valid retention of log files; ", self.0)?;
        f.write_str("give their number (7), their size together (500m), or sighup when logrotate does it")
    }
}

impl std::error::Error for RetentionError {}

impl std::str::FromStr for Retention {
    type Err = RetentionError;

    /// Parses a number of files, a size with `k`, `m`, `g` or `t`, or `sig` and names of signals
    /// for an external rotation.
    fn from_str(text: &str) -> Result<Self, RetentionError> {
        let error = || RetentionError(text.to_owned());
        if text == "sig" || text == "sighup" || text == "fifo" || text.starts_with("sigrtmin") {
            return Ok(Self::External);
        }
        let Some(split) = text.find(|c: char| !c.is_ascii_digit()) else {
            return text.parse().map(Self::Files).map_err(|_| error());
        };
        let (digits, suffix) = text.split_at(split);
        let number: u64 = digits.parse().map_err(|_| error())?;
        let unit: u64 = match suffix {
            "k" | "K" => 1 << 10,
            "m" | "M" => 1 << 20,
            "g" | "G" => 1 << 30,
            "t" | "T" => 1 << 40,
            _ => return Err(error()),
        };
        number.checked_mul(unit).map(Self::Bytes).ok_or_else(error)
    }
}

/// The part of a rotation that failed.
#[derive(Debug)]
pub(super) enum RotationError {
    /// The lines of the new day are written to the old file.
    Rotate(io::Error),
    /// The new day has its file, but old files that should be removed still exist.
    Trim(io::Error),
}

impl std::fmt::Display for RotationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rotate(error) => {
                write!(f, "the log was not rotated and goes on in the same file: {error}")?;
            }
            Self::Trim(error) => {
                write!(f, "the log was rotated, but old log files were not removed: {error}")?;
            }
        }
        f.write_str("; the next attempt is at midnight")
    }
}

/// An open log file.
pub struct LogFile {
    path: PathBuf,
    retention: Retention,
    file: File,
    /// The directory and name of the open file, after links were resolved.
    directory: SharedDirectory,
    name: OsString,
    /// The day of its lines.
    day: jiff::civil::Date,
}

impl LogFile {
    /// Opens the file to append. A missing file and its directory are created.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: PathBuf, retention: Retention) -> io::Result<Self> {
        let (directory, name, file) = SharedDirectory::of_log(&path, DIRECTORY_MODE)?;
        // A file of an earlier day, from a server that did not run at midnight, is rotated before
        // the first line.
        let today = Zoned::now().date();
        let day = last_day(&file).filter(|day| *day < today).unwrap_or(today);
        Ok(Self { path, retention, file, directory, name, day })
    }

    /// Closes the file and opens the name again.
    ///
    /// # Errors
    /// The name cannot be opened; then the old file stays in use.
    pub fn reopen(&mut self) -> io::Result<()> {
        (self.directory, self.name, self.file) = SharedDirectory::of_log(&self.path, DIRECTORY_MODE)?;
        Ok(())
    }

    /// Returns the time to the next midnight, when lines of a new day begin.
    pub(super) fn until_rotation(&self) -> Duration {
        let now = Zoned::now();
        let midnight = now.date().tomorrow().and_then(|day| day.to_zoned(now.time_zone().clone()));
        let left = midnight.ok().and_then(|midnight| Duration::try_from(now.duration_until(&midnight)).ok());
        // The next line detects a clock that is set back or forward.
        left.unwrap_or(Duration::from_secs(3600)).max(Duration::from_millis(1))
    }

    /// Starts a new file if a new day has begun. If that fails, the lines of the new day are
    /// written to the old file, and the next attempt is at the next midnight.
    ///
    /// # Errors
    /// The failed part and the reason, once for each attempt.
    pub(super) fn rotate_when_due(&mut self) -> Result<(), RotationError> {
        let today = Zoned::now().date();
        if today == self.day {
            return Ok(());
        }
        let ended = std::mem::replace(&mut self.day, today);
        if self.retention == Retention::External { Ok(()) } else { self.rotate(ended) }
    }

    /// Renames the file for `day`, starts a new one, and removes old files according to the
    /// retention.
    fn rotate(&mut self, day: jiff::civil::Date) -> Result<(), RotationError> {
        let is_rotated = self.begin_anew(day).map_err(RotationError::Rotate)?;
        if is_rotated { self.trim().map_err(RotationError::Trim) } else { Ok(()) }
    }

    /// Renames the file for `day` and starts a new one. Returns `false` if the log is not a regular
    /// file.
    fn begin_anew(&mut self, day: jiff::civil::Date) -> io::Result<bool> {
        if !self.file.metadata()?.is_file() {
            return Ok(false); // a terminal or a pipe
        }
        let old = self.free_name(&day.strftime("%Y%m%d").to_string());
        self.directory.rename(&self.name, &old)?;
        if let Err(error) = self.reopen() {
            // It fails if descriptors are exhausted, for example. The file in use must keep its
            // name, under which users search it.
            self.directory.rename(&old, &self.name)?;
            return Err(error);
        }
        Ok(true)
    }

    fn free_name(&self, stamp: &str) -> OsString {
        let named = |suffix: &str| {
            let mut name = self.name.clone();
            name.push(suffix);
            name
        };
        let first = named(&format!(".{stamp}"));
        let is_free = |name: &OsString| !self.directory.path().join(name).exists();
        if is_free(&first) {
            return first;
        }
        (1u32..).map(|n| named(&format!(".{stamp}.{n}"))).find(is_free).unwrap_or(first)
    }

    /// Removes old files according to the retention. It continues after one that cannot be removed.
    fn trim(&self) -> io::Result<()> {
        if matches!(self.retention, Retention::All | Retention::External) {
            return Ok(());
        }
        let mut failed = Ok(());
        let mut old = self.old_files()?;
        old.sort_by_key(|(modified, name, _)| std::cmp::Reverse((*modified, name.clone())));
        let mut bytes = 0;
        for (index, (_, name, length)) in old.iter().enumerate() {
            bytes += length;
            let keep = match self.retention {
                Retention::All | Retention::External => true,
                Retention::Files(most) => (index as u64) < most,
                Retention::Bytes(most) => bytes <= most,
            };
            if !keep && let Err(error) = self.directory.remove(name) {
                let text = format!("{}: {error}", base::shown(name.as_encoded_bytes()));
                failed = failed.and(Err(io::Error::new(error.kind(), text)));
            }
        }
        failed
    }

    /// Returns the rotated files of this log: its name, a dot and eight digits, optionally a
    /// number.
    fn old_files(&self) -> io::Result<Vec<(SystemTime, OsString, u64)>> {
        let Some(name) = self.name.to_str() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in fs::read_dir(self.directory.path())? {
            let entry = entry?;
            let file_name = entry.file_name();
            let stamp = file_name.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
            if !stamp.is_some_and(is_stamp) {
                continue;
            }
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                found.push((metadata.modified()?, file_name, metadata.len()));
            }
        }
        Ok(found)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the day of the last line of a file; `None` if it is empty.
fn last_day(file: &File) -> Option<jiff::civil::Date> {
    let metadata = file.metadata().ok().filter(|metadata| metadata.len() > 0)?;
    Some(Zoned::try_from(metadata.modified().ok()?).ok()?.date())
}

fn is_stamp(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (day, number) = text.split_once('.').unwrap_or((text, "0"));
    day.len() == 8 && digits(day) && digits(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;
    use jiff::civil::date;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("scalla-log-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(&self.0)
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn retention_reads_numbers_sizes_and_signals() {
        let table = [
            ("7", Some(Retention::Files(7))),
            ("0", Some(Retention::Files(0))),
            ("10m", Some(Retention::Bytes(10 << 20))),
            ("2G", Some(Retention::Bytes(2 << 30))),
            ("sig", Some(Retention::External)),
            ("sighup", Some(Retention::External)),
            ("sigrtmin+1", Some(Retention::External)),
            ("fifo", Some(Retention::External)),
            ("", None),
            ("x", None),
            ("5x", None),
            ("-3", None),
            ("99999999999t", None),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Retention>().ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_rotated_file_is_named_by_its_day_and_the_oldest_are_removed() {
        let directory = Directory::new("rotate");
        let mut log = LogFile::open(directory.0.join("x.log"), Retention::Files(2)).unwrap();
        fs::write(directory.0.join("x.log.notes"), "mine").unwrap();
        for day in 1..=3 {
            writeln!(log, "day {day}").unwrap();
            let yesterday = SystemTime::now() - Duration::from_secs(3600 * (10 - day as u64));
            log.file.set_modified(yesterday).unwrap();
            log.rotate(date(2026, 11, day)).unwrap();
        }
        assert_eq!(directory.names(), ["x.log", "x.log.20261102", "x.log.20261103", "x.log.notes"]);
        writeln!(log, "again").unwrap();
        log.rotate(date(2026, 11, 3)).unwrap();
        assert_eq!(directory.names(), ["x.log", "x.log.20261103", "x.log.20261103.1", "x.log.notes"]);
        assert_eq!(fs::read_to_string(directory.0.join("x.log.20261103")).unwrap(), "day 3\n");
    }

    #[test]
    fn old_files_are_removed_when_their_total_size_is_too_large() {
        let directory = Directory::new("bytes");
        let mut log = LogFile::open(directory.0.join("x.log"), Retention::Bytes(10)).unwrap();
        for day in 1..=3 {
            write!(log, "12345").unwrap();
            log.file.set_modified(SystemTime::now() - Duration::from_secs(3600 * (10 - day as u64))).unwrap();
            log.rotate(date(2026, 11, day)).unwrap();
        }
        assert_eq!(directory.names(), ["x.log", "x.log.20261102", "x.log.20261103"]);
    }

    #[test]
    fn a_file_from_an_earlier_day_is_rotated_before_the_first_line() {
        let directory = Directory::new("leftover");
        let path = directory.0.join("x.log");
        fs::write(&path, "old\n").unwrap();
        let before = Zoned::now().checked_sub(3.days()).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(before.timestamp().into()).unwrap();
        LogFile::open(path.clone(), Retention::All).unwrap().rotate_when_due().unwrap();
        let expected = format!("x.log.{}", before.strftime("%Y%m%d"));
        assert_eq!(directory.names(), ["x.log".to_owned(), expected]);
        assert_eq!(fs::read_to_string(path).unwrap(), "");
    }

    #[test]
    fn a_file_moved_away_is_reopened() {
        let directory = Directory::new("reopen");
        let path = directory.0.join("x.log");
        let mut log = LogFile::open(path.clone(), Retention::External).unwrap();
        writeln!(log, "before").unwrap();
        fs::rename(&path, directory.0.join("moved")).unwrap();
        log.reopen().unwrap();
        writeln!(log, "after").unwrap();
        assert_eq!(fs::read_to_string(directory.0.join("moved")).unwrap(), "before\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "after\n");
    }

    /// Set in the process that runs [`a_rotation_without_descriptors_goes_on_in_the_old_file`] with
    /// exhausted descriptors.
    const ALONE: &str = "SCALLA_TEST_NO_DESCRIPTORS";

    #[test]
    fn a_rotation_without_descriptors_goes_on_in_the_old_file() {
        if std::env::var_os(ALONE).is_some() {
            return rotate_without_descriptors();
        }
        let name = "log::file::tests::a_rotation_without_descriptors_goes_on_in_the_old_file";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    fn rotate_without_descriptors() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let directory = Directory::new("descriptors");
        let mut log = LogFile::open(directory.0.join("x.log"), Retention::All).unwrap();
        let yesterday = || Zoned::now().checked_sub(1.days()).unwrap().date();
        let stamped = format!("x.log.{}", yesterday().strftime("%Y%m%d"));
        writeln!(log, "before").unwrap();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        log.day = yesterday();
        let RotationError::Rotate(failed) = log.rotate_when_due().unwrap_err() else { panic!() };
        assert_eq!(failed.raw_os_error(), Some(libc::EMFILE), "{failed}");
        assert!(log.rotate_when_due().is_ok(), "reported once a day");
        writeln!(log, "meanwhile").unwrap();
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(directory.names(), ["x.log"]);
        log.day = yesterday();
        log.rotate_when_due().unwrap();
        writeln!(log, "after").unwrap();
        assert_eq!(directory.names(), ["x.log".to_owned(), stamped.clone()]);
        assert_eq!(fs::read_to_string(directory.0.join(stamped)).unwrap(), "before\nmeanwhile\n");
        assert_eq!(fs::read_to_string(directory.0.join("x.log")).unwrap(), "after\n");
    }

    /// Runs `work` as a user to whom file modes apply, even if this process belongs to root.
    fn without_overriding_modes<T>(work: impl FnOnce() -> T) -> T {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let before = capabilities(None).unwrap();
        let mut limited = before;
        limited.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, limited).unwrap();
        let result = work();
        set_capabilities(None, before).unwrap();
        result
    }

    #[test]
    fn a_rotation_that_leaves_old_files_reports_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new("trim");
        let set_mode = |mode| fs::set_permissions(&directory.0, fs::Permissions::from_mode(mode)).unwrap();
        let mut log = LogFile::open(directory.0.join("x.log"), Retention::Files(0)).unwrap();
        writeln!(log, "before").unwrap();
        log.day = Zoned::now().checked_sub(1.days()).unwrap().date();
        // Names in it can be changed but not listed.
        set_mode(0o300);
        let failed = without_overriding_modes(|| log.rotate_when_due()).unwrap_err();
        set_mode(0o700);
        let expected = "the log was rotated, but old log files were not removed: Permission denied (os error 13); the next \
                        attempt is at midnight";
        assert_eq!(failed.to_string(), expected);
        writeln!(log, "after").unwrap();
        assert_eq!(fs::read_to_string(directory.0.join("x.log")).unwrap(), "after\n");
        assert_eq!(directory.names().len(), 2);
    }

    #[test]
    fn a_link_of_ours_is_followed_and_the_file_behind_it_rotated() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new("link");
        fs::create_dir(directory.0.join("disk")).unwrap();
        std::os::unix::fs::symlink("disk/real.log", directory.0.join("x.log")).unwrap();
        let mut log = LogFile::open(directory.0.join("x.log"), Retention::All).unwrap();
        writeln!(log, "line").unwrap();
        log.rotate(date(2026, 11, 1)).unwrap();
        assert_eq!(directory.names(), ["disk", "x.log"]);
        assert_eq!(fs::read_to_string(directory.0.join("disk/real.log.20261101")).unwrap(), "line\n");
        fs::hard_link(directory.0.join("disk/real.log"), directory.0.join("other")).unwrap();
        log.reopen().unwrap();
        fs::set_permissions(directory.0.join("disk"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(log.reopen().unwrap_err().to_string().contains("has 2 names"));
    }

    #[test]
    fn the_standard_output_and_devices_can_be_logs_and_are_never_rotated() {
        for path in ["/dev/null", "/proc/self/fd/2"] {
            let mut log = LogFile::open(path.into(), Retention::Files(0)).unwrap();
            write!(log, "").unwrap();
            if !log.file.metadata().unwrap().is_file() {
                log.rotate(date(2026, 11, 1)).unwrap();
            }
        }
        assert!(std::path::Path::new("/dev/null").exists());
    }
}
