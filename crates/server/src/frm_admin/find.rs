//! `find`: files in a state that an administrator looks for.

use super::attributes::{MEMORY_ATTRIBUTE, now, shown_memory};
use super::tree::{FAIL_SUFFIX, FoundName};
use super::words::{CommandOption, CommandWords};
use super::{CommandRun, CommandStep, counted, error_text, pin_time};
use digest::{Algorithm, ChecksumRecord};
use std::io;
use storage::{Backend as _, COPY_TIME_ATTRIBUTE, CopyTime, FilePin, PIN_ATTRIBUTE};

const OPTIONS: [CommandOption; 1] = [CommandOption::switch("recursive")];

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FindTarget {
    /// What a failed copy left.
    Failures,
    /// To be kept in memory.
    Mapped,
    /// Without a valid checksum of this type.
    WithoutChecksum(Algorithm),
    /// Without a lock file of old tools.
    WithoutLockFile,
    Pinned,
    /// Without a copy in mass storage.
    Unmigrated,
}

/// Names of what is looked for, with the length of the shortest abbreviation.
const NAMES: [(&str, usize, FindTarget); 5] = [
    ("failfiles", 4, FindTarget::Failures),
    ("mmapped", 4, FindTarget::Mapped),
    ("nolkfiles", 4, FindTarget::WithoutLockFile),
    ("pinned", 3, FindTarget::Pinned),
    ("unmigrated", 5, FindTarget::Unmigrated),
];

impl FindTarget {
    /// Returns the line at the end.
    fn summary(self, number: u64) -> String {
        let found = |one, many| format!("{} found", counted(number, one, many));
        match self {
            Self::Failures => found("fail file", "fail files") + ".",
            Self::Mapped => found("mmapped file", "mmapped files") + ".",
            Self::WithoutChecksum(_) => found("file", "files") + " with no chksum.",
            Self::WithoutLockFile => found("missing lock file", "missing lock files") + ".",
            Self::Pinned => found("pinned file", "pinned files") + ".",
            Self::Unmigrated => found("unmigrated file", "unmigrated files") + ".",
        }
    }
}

/// `find [-r] WHAT DIRECTORY…`.
pub(super) fn find(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let is_recursive = run.options(words, &OPTIONS)?.has("recursive");
    let Some(what) = words.text() else { return run.refuse("find type not specified.") };
    let wanted = match what.as_str() {
        "nochksum" => {
            let Some(kind) = words.text() else { return run.refuse("find target not specified.") };
            match Algorithm::from_name(&kind) {
                Some(algorithm) => FindTarget::WithoutChecksum(algorithm),
                None => return run.refuse(format!("{kind} checksum is not supported.")),
            }
        }
        _ => {
            let fits = |name: &str, least: usize| what.len() >= least && name.starts_with(&what);
            match NAMES.iter().find(|(name, least, _)| fits(name, *least)) {
                Some((_, _, wanted)) => *wanted,
                None => return run.refuse(format!("Unknown find type - {what}")),
            }
        }
    };
    let Some(mut word) = run.next_path(words)? else { return run.refuse("find target not specified.") };
    let mut number = 0;
    loop {
        let mut visit = |run: &mut CommandRun<'_>, found: FoundName<'_>| {
            match finding(run, wanted, &found) {
                Ok(Some(line)) => {
                    number += 1;
                    run.message(line);
                }
                Ok(None) => {}
                Err(error) => {
                    let path = run.admin.shown_local(found.path);
                    run.fail(format!("Unable to examine {path}; {}", error_text(&error)));
                }
            }
            Ok(())
        };
        match wanted {
            FindTarget::Failures => run.walk_all(&word.path, is_recursive, &mut visit)?,
            _ => run.walk(&word.path, is_recursive, &mut visit)?,
        }
        match run.next_path(words)? {
            Some(next) => word = next,
            None => break,
        }
    }
    run.message(wanted.summary(number));
    Ok(())
}

/// Returns the line for a file if it is one of those that are looked for.
fn finding(run: &CommandRun<'_>, wanted: FindTarget, found: &FoundName<'_>) -> io::Result<Option<String>> {
    let (admin, path) = (run.admin, found.path);
    let local = admin.shown_local(path);
    if wanted == FindTarget::Failures {
        return Ok(path.as_bytes().ends_with(FAIL_SUFFIX).then_some(local));
    }
    let status = match &found.status {
        Ok(status) => status,
        Err(error) => return Err(copied(error)),
    };
    Ok(match wanted {
        FindTarget::Failures => None,
        FindTarget::Mapped => {
            let value = admin.attribute(path, MEMORY_ATTRIBUTE)?;
            value.and_then(|value| shown_memory(&value)).map(|options| format!("mmap {options}{local}"))
        }
        FindTarget::WithoutChecksum(algorithm) => {
            let value = admin.attribute(path, &ChecksumRecord::attribute(algorithm))?;
            let record = value.and_then(|value| ChecksumRecord::decode(&value));
            let is_valid = record
                .is_some_and(|record| record.fits(status.modified, status.modified_nanoseconds, status.size));
            (!is_valid).then(|| format!("Missing {algorithm} {local}"))
        }
        FindTarget::WithoutLockFile => {
            let lock = base::LogicalPath::parse(&[path.as_bytes(), b".lock"].concat());
            let has_lock = lock.is_ok_and(|lock| admin.posix.has_name(&lock).unwrap_or(false));
            (!has_lock).then_some(local)
        }
        FindTarget::Pinned => {
            let pin = admin.attribute(path, PIN_ATTRIBUTE)?.and_then(|value| FilePin::decode(&value));
            let time = pin.and_then(|pin| pin_time::shown(pin, now()));
            time.map(|time| format!("pin -k {time} {local}"))
        }
        FindTarget::Unmigrated => match admin.attribute(path, COPY_TIME_ATTRIBUTE)? {
            None => Some(format!("Unmigrated; no copy time: {local}")),
            value => (!CopyTime::shows_copy(value.as_deref(), status.modified))
                .then(|| format!("Unmigrated; modified: {local}")),
        },
    })
}

/// Returns an error with the same number.
pub(super) fn copied(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
