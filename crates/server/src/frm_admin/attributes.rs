//! `mark`, `pin`, `mmap` and `makelf`: the attributes of files with copies in mass storage.

use super::tree::{FileChange, NeededAttribute};
use super::words::{CommandOption, CommandWords};
use super::{CommandRun, CommandStep, FrmAdmin, counted, error_text, pin_time};
use base::LogicalPath;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::{
    COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, HeldFile, Metadata, PIN_ATTRIBUTE,
};

/// Seconds before the modification time of a file that is to be migrated, and after that of one that has a
/// copy, in the time of lock files; in the attribute only the former.
const COPY_OFFSET: i64 = 113;

/// The attribute that tells XRootD which files to keep in memory.
pub(super) const MEMORY_ATTRIBUTE: &str = "user.XrdFrm.Mem";

/// Bytes of its value, and its flags: map the file, keep it mapped, lock it in memory.
const MEMORY_BYTES: usize = 8;
const MEMORY_MAP: u8 = 0x01;
const MEMORY_KEEP: u8 = 0x02;
const MEMORY_LOCK: u8 = 0x04;

const MIGRATABLE: NeededAttribute = (|attributes| attributes.migrate, "migratable");
const PURGEABLE: NeededAttribute = (|attributes| attributes.purge, "purgeable");
const STAGEABLE: NeededAttribute = (|attributes| attributes.stage || attributes.purge, "stageable");

const MARK_OPTIONS: [CommandOption; 4] = [
    CommandOption::switch("force"),
    CommandOption::switch("migratable"),
    CommandOption::switch("purgeable"),
    CommandOption::switch("recursive"),
];
const PIN_OPTIONS: [CommandOption; 2] = [CommandOption::valued("keep"), CommandOption::switch("recursive")];
const MAP_OPTIONS: [CommandOption; 4] = [
    CommandOption::switch("keep"),
    CommandOption::switch("lock"),
    CommandOption::switch("off"),
    CommandOption::switch("recursive"),
];
const LOCK_OPTIONS: [CommandOption; 4] = [
    CommandOption::switch("migratable"),
    CommandOption::valued("owner"),
    CommandOption::switch("purgeable"),
    CommandOption::switch("recursive"),
];

/// Returns the time now, in seconds since the epoch.
pub(super) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the options of XRootD that the value of [`MEMORY_ATTRIBUTE`] stands for, each with a blank.
pub(super) fn shown_memory(value: &[u8]) -> Option<String> {
    let flags = *value.first().filter(|flags| **flags != 0)?;
    let option = |flag: u8, text| if flags & flag == 0 { "" } else { text };
    Some(format!("{}{}", option(MEMORY_KEEP, "-keep "), option(MEMORY_LOCK, "-lock ")))
}

impl FrmAdmin {
    /// Returns an attribute of a file.
    pub(super) fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.hold(path)?.attribute(name)
    }

    /// Makes a file one that mass storage does not have.
    pub(super) fn set_uncopied(&self, path: &LogicalPath) -> io::Result<()> {
        let file = self.hold(path)?;
        // 0 would exclude it from migration.
        let time = file.stat()?.modified.saturating_sub(COPY_OFFSET).max(CopyTime::NEVER.0);
        file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime(time).encode())?;
        file.remove_attribute(COPY_RECORD_ATTRIBUTE)?;
        file.sync()
    }

    /// Makes a file one that mass storage has, as the administrator says. With a program that knows the names
    /// there, it must confirm that, unless `is_forced`.
    pub(super) fn set_copied(&self, path: &LogicalPath, is_forced: bool) -> Result<(), String> {
        let fail = |error: io::Error| error_text(&error);
        let file = self.hold(path).map_err(fail)?;
        let status = file.stat().map_err(fail)?;
        if !is_forced {
            self.confirm_copy(path, file.as_ref(), &status)?;
        }
        if !CopyTime(status.modified).has_copy(status.modified) {
            return Err("its modification time is too early".to_owned());
        }
        write_copied(file.as_ref(), path, &status).map_err(fail)
    }

    fn confirm_copy(&self, path: &LogicalPath, file: &dyn HeldFile, status: &Metadata) -> Result<(), String> {
        let Some(catalog) = &self.catalog else { return Ok(()) };
        match catalog.status(path) {
            Ok(Some(found)) if !found.is_directory && found.size == status.size => {
                let odd = |odd| format!("{odd} (-f marks it all the same)");
                let Some(checksum) = found.checksum.map_err(odd)? else { return Ok(()) };
                match residency::has_content(file, checksum).map_err(|error| error_text(&error))? {
                    true => Ok(()),
                    false => Err(format!(
                        "mass storage has another {} checksum for it (-f marks it all the same)",
                        checksum.algorithm()
                    )),
                }
            }
            Ok(Some(_)) => {
                Err("mass storage has something else under its name (-f marks it all the same)".to_owned())
            }
            Ok(None) => Err("mass storage does not have it (-f marks it all the same)".to_owned()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Returns the lock file time of a file.
    fn lock_time(&self, path: &LogicalPath, is_copied: bool) -> io::Result<i64> {
        let status = self.hold(path)?.stat()?;
        Ok(match is_copied {
            true => status.modified.saturating_add(COPY_OFFSET),
            false => status.modified.saturating_sub(COPY_OFFSET),
        })
    }
}

fn write_copied(file: &dyn HeldFile, path: &LogicalPath, status: &Metadata) -> io::Result<()> {
    file.set_attribute(COPY_RECORD_ATTRIBUTE, CopyRecord::new(path, status).encode())?;
    file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime(status.modified).encode())?;
    file.sync()
}

/// `mark`: makes files ones that mass storage has or does not have.
pub(super) fn mark(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options_of_change(words, ("mark", &MARK_OPTIONS))?;
    let (is_purgeable, is_forced) = (options.has("purgeable"), options.has("force"));
    let mut change = FileChange {
        name: "mark",
        question: "Mark ",
        needed: Some(if is_purgeable { PURGEABLE } else { MIGRATABLE }),
        is_recursive: options.has("recursive"),
        is_forced,
        changed: 0,
    };
    let end = run.change_files(words, &mut change, &mut |admin, path| match is_purgeable {
        true => admin.set_copied(path, is_forced),
        false => admin.set_uncopied(path).map_err(|error| error_text(&error)),
    });
    let kind = if is_purgeable { "purgeable" } else { "migratable" };
    run.message(format!("{} marked {kind}.", counted(change.changed, "file", "files")));
    end
}

/// `pin`: keeps files on disk, or ends that.
pub(super) fn pin(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options_of_change(words, ("pin", &PIN_OPTIONS))?;
    let pin = match options.value("keep").map(|text| pin_time::parse(text, now())).transpose() {
        Ok(pin) => pin.flatten(),
        Err(text) => return run.refuse(text),
    };
    let mut change = FileChange {
        name: "pin",
        question: "Pin ",
        needed: Some(STAGEABLE),
        is_recursive: options.has("recursive"),
        is_forced: false,
        changed: 0,
    };
    let set = |admin: &FrmAdmin, path: &LogicalPath| {
        let file = admin.hold(path)?;
        match pin {
            Some(pin) => file.set_attribute(PIN_ATTRIBUTE, &pin.encode())?,
            None if file.attribute(PIN_ATTRIBUTE)?.is_none() => return Ok(false),
            None => file.remove_attribute(PIN_ATTRIBUTE)?,
        }
        file.sync().map(|()| true)
    };
    let mut without = 0;
    let end = run.change_files(words, &mut change, &mut |admin, path| {
        let is_changed = set(admin, path).map_err(|error: io::Error| error_text(&error))?;
        without += u64::from(!is_changed);
        Ok(())
    });
    let (one, many) = if pin.is_some() { ("pin", "pins") } else { ("unpin", "unpins") };
    run.message(format!("{} processed.", counted(change.changed - without, one, many)));
    end
}

/// `mmap`: sets the attribute by which XRootD keeps files in memory.
pub(super) fn map_in_memory(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options_of_change(words, ("mmap", &MAP_OPTIONS))?;
    let flag = |name, flag| if options.has(name) { flag } else { 0 };
    let mut value = [0; MEMORY_BYTES];
    if let Some(flags) = value.first_mut() {
        *flags = MEMORY_MAP | flag("keep", MEMORY_KEEP) | flag("lock", MEMORY_LOCK);
    }
    let is_off = options.has("off");
    let mut change = FileChange {
        name: "mmap",
        question: "Mmap ",
        needed: None,
        is_recursive: options.has("recursive"),
        is_forced: false,
        changed: 0,
    };
    let end = run.change_files(words, &mut change, &mut |admin, path| {
        let set = |file: Box<dyn HeldFile>| match is_off {
            true => file.remove_attribute(MEMORY_ATTRIBUTE),
            false => file.set_attribute(MEMORY_ATTRIBUTE, &value),
        };
        admin.hold(path).and_then(set).map_err(|error| error_text(&error))
    });
    run.message(format!("{} processed.", counted(change.changed, "mmap", "mmaps")));
    end
}

/// `makelf`: creates the lock files of old tools.
pub(super) fn make_lock_files(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options_of_change(words, ("makelf", &LOCK_OPTIONS))?;
    let owner = match options.value("owner").map(owner).transpose() {
        Ok(owner) => owner.unwrap_or_default(),
        Err(text) => return run.refuse(text),
    };
    let is_purgeable = options.has("purgeable");
    let mut change = FileChange {
        name: "makelf",
        question: "Apply makelf to",
        needed: match (is_purgeable, options.has("migratable")) {
            (true, _) => Some(PURGEABLE),
            (false, true) => Some(MIGRATABLE),
            (false, false) => None,
        },
        is_recursive: options.has("recursive"),
        is_forced: false,
        changed: 0,
    };
    let end = run.change_files(words, &mut change, &mut |admin, path| {
        let time = admin.lock_time(path, is_purgeable);
        time.and_then(|time| admin.posix.set_lock_file(path, time, owner)).map_err(|error| error_text(&error))
    });
    run.message(format!("{} made.", counted(change.changed, "lock file", "lock files")));
    end
}

/// Parses `[USER][:[GROUP]]`. `USER:` stands for the group of the user.
fn owner(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    use nix::unistd::{Group, User};
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let user = match user {
        "" => None,
        name => match User::from_name(name) {
            Ok(Some(user)) => Some(user),
            _ => return Err(format!("Invalid user name - {name}")),
        },
    };
    let group = match group {
        None => None,
        Some("") => user.as_ref().map(|user| user.gid.as_raw()),
        Some(name) => match Group::from_name(name) {
            Ok(Some(group)) => Some(group.gid.as_raw()),
            _ => return Err(format!("Invalid group name - {name}")),
        },
    };
    Ok((user.map(|user| user.uid.as_raw()), group))
}
