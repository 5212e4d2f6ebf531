//! `audit`: finds what does not fit together in the name space and in spaces, and repairs it.

use super::console::Preferred;
use super::find::copied;
use super::tree::FoundName;
use super::words::{CommandOption, CommandWords, GivenOptions};
use super::{CommandRun, CommandStep, FrmAdmin, counted, error_text, shown_bytes};
use base::LogicalPath;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use storage::posix::{NAME_ATTRIBUTE, SpaceDataFile};
use storage::{Backend as _, COPY_TIME_ATTRIBUTE, CopyTime};

const OPTIONS: [CommandOption; 5] = [
    CommandOption::switch("force"),
    CommandOption::switch("fix"),
    CommandOption::switch("migratable"),
    CommandOption::switch("purgeable"),
    CommandOption::switch("recursive"),
];

/// The name of the command.
const NAME: &str = "audit";

/// The state of an audit.
#[derive(Default)]
struct Audit {
    options: GivenOptions,
    problems: u64,
    fixed: u64,
}

impl FrmAdmin {
    /// Returns the path whose name is at a local path. `None` outside of the local root, and with name rules,
    /// which are not translated back.
    pub(super) fn logical_path(&self, local: &Path) -> Option<LogicalPath> {
        if !self.effective.storage.name_rules.is_empty() {
            return None;
        }
        let root = self.effective.storage.local_root.value.as_deref().unwrap_or(Path::new("/"));
        let below = local.strip_prefix(root).ok()?;
        LogicalPath::parse(&[b"/", below.as_os_str().as_bytes()].concat()).ok()
    }
}

impl CommandRun<'_> {
    /// `audit {names DIRECTORY | space NAME[:PARTITION] | usage [NAME]}`.
    pub(super) fn audit(&mut self, words: &mut CommandWords<'_>) -> CommandStep {
        let options = self.options(words, &OPTIONS)?;
        let Some(kind) = words.text() else { return self.refuse("audit type not specified.") };
        let mut audit = Audit { options, ..Audit::default() };
        match kind.as_str() {
            "names" => {
                let Some(word) = self.next_path(words)? else {
                    return self.refuse("audit target not specified.");
                };
                let is_recursive = audit.options.has("recursive");
                let end =
                    self.walk(&word.path, is_recursive, &mut |run, found| run.audit_name(found, &mut audit));
                self.report(&audit);
                end
            }
            "space" => match words.next() {
                Some(space) => self.audit_space(space, audit),
                None => self.refuse("audit target not specified."),
            },
            "usage" => self.audit_usage(words.text(), &audit),
            _ => self.refuse(format!("Unknown audit type - {kind}")),
        }
    }

    fn report(&mut self, audit: &Audit) {
        let problems = counted(audit.problems, "problem", "problems");
        self.message(format!("{problems} found; {} fixed.", audit.fixed));
    }

    /// Asks whether a problem is to be repaired, if the administrator wants repairs at all.
    fn may_fix(&mut self, audit: &Audit, question: &str, preferred: Preferred) -> CommandStep<bool> {
        match (audit.options.has("fix"), audit.options.has("force")) {
            (false, _) => Ok(false),
            (true, true) => Ok(true),
            (true, false) => self.confirm(question, preferred, NAME),
        }
    }

    /// Reports the result of a repair.
    fn repaired(&mut self, result: io::Result<()>, what: &str, audit: &mut Audit) {
        match result {
            Ok(()) => {
                audit.fixed += 1;
                self.message(what);
            }
            Err(error) => self.fail(format!("Unable to fix it; {}", error_text(&error))),
        }
    }

    fn audit_name(&mut self, found: FoundName<'_>, audit: &mut Audit) -> CommandStep {
        let (path, local) = (found.path, self.admin.shown_local(found.path));
        if let Err(error) = &found.status {
            return self.audit_broken_link(&found, error, audit);
        }
        let file = match self.admin.hold(path) {
            Ok(file) => file,
            Err(error) => {
                self.fail(format!("Unable to examine {local}; {}", error_text(&error)));
                return Ok(());
            }
        };
        let wants_copy = self.admin.export(path).is_some_and(|export| export.migrate || export.purge);
        if wants_copy {
            match file.attribute(COPY_TIME_ATTRIBUTE) {
                Ok(Some(value)) if CopyTime::decode(&value).is_some() => {}
                Ok(_) => self.audit_copy_time(path, &local, audit)?,
                Err(error) => {
                    self.fail(format!("Unable to get copy time for {local}; {}", error_text(&error)))
                }
            }
        }
        if found.is_link && matches!(self.admin.posix.space_data(path), Ok(Some(_))) {
            match file.attribute(NAME_ATTRIBUTE) {
                Ok(value) => self.audit_cross_reference(path, value, audit)?,
                Err(error) => {
                    self.fail(format!("Unable to get pfn xattr for {local}; {}", error_text(&error)))
                }
            }
        }
        Ok(())
    }

    fn audit_broken_link(
        &mut self,
        found: &FoundName<'_>,
        error: &io::Error,
        audit: &mut Audit,
    ) -> CommandStep {
        let (path, local) = (found.path, self.admin.shown_local(found.path));
        let target = self.admin.posix.link_target(path).ok().flatten();
        let Some(target) = target.filter(|_| storage::is_missing(error)) else {
            self.fail(format!("Unable to examine {local}; {}", error_text(&copied(error))));
            return Ok(());
        };
        self.has_failed = true;
        audit.problems += 1;
        self.message(format!("Dangling link:  {local}"));
        self.message(format!("Missing target: {}", shown_bytes(target.as_os_str().as_bytes())));
        if self.may_fix(audit, "Remove symlink?", Preferred::No)? {
            // Only a link is removed, and not a file that has its name meanwhile.
            let is_link = matches!(self.admin.posix.link_target(path), Ok(Some(found)) if found == target);
            let removed = match is_link {
                true => self.admin.posix.remove_file(path),
                false => Err(io::ErrorKind::AlreadyExists.into()),
            };
            self.repaired(removed, "Symlink removed.", audit);
        }
        Ok(())
    }

    fn audit_copy_time(&mut self, path: &LogicalPath, local: &str, audit: &mut Audit) -> CommandStep {
        audit.problems += 1;
        self.message(format!("No copy time for: {local}"));
        if self.may_fix(audit, "Set copy time?", Preferred::Yes)? {
            match audit.options.has("purgeable") {
                true => match self.admin.set_copied(path, audit.options.has("force")) {
                    Ok(()) => self.repaired(Ok(()), "Copy time set.", audit),
                    Err(text) => self.fail(format!("Unable to fix it; {text}")),
                },
                false => {
                    let set = self.admin.set_uncopied(path);
                    self.repaired(set, "Copy time set.", audit);
                }
            }
        }
        Ok(())
    }

    fn audit_cross_reference(
        &mut self,
        path: &LogicalPath,
        value: Option<Vec<u8>>,
        audit: &mut Audit,
    ) -> CommandStep {
        let name = self.admin.local_path(path);
        let local = self.admin.shown_local(path);
        match &value {
            Some(value) if value.strip_suffix(b"\0") == Some(name.as_os_str().as_bytes()) => return Ok(()),
            Some(value) => {
                self.message(format!("Incorrect pfn xref to {local}"));
                let other = value.split(|byte| *byte == 0).next().unwrap_or_default();
                self.message(format!("Data file refers to   {}", shown_bytes(other)));
            }
            None => self.message(format!("Missing pfn xref for  {local}")),
        }
        audit.problems += 1;
        if self.may_fix(audit, "Set pfn xref?", Preferred::Yes)? {
            let set = self.admin.posix.restore_cross_reference(path);
            self.repaired(set, "pfn xref set.", audit);
        }
        Ok(())
    }

    fn audit_space(&mut self, word: &[u8], mut audit: Audit) -> CommandStep {
        let shown = shown_bytes(word);
        let (space, begin) = match word.iter().position(|byte| *byte == b':') {
            Some(at) => (word.get(..at), word.get(at + 1..).unwrap_or_default()),
            None => (Some(word), &b""[..]),
        };
        let space = shown_bytes(space.unwrap_or_default());
        let (mut files, mut bytes, mut unreachable) = (0, 0, 0);
        let mut end = Ok(());
        let admin = self.admin;
        let visited = admin.posix.visit_space(&space, OsStr::from_bytes(begin), &mut |file| {
            files += 1;
            bytes += file.bytes;
            match self.audit_data_file(&file, &mut audit) {
                Ok(true) => {}
                Ok(false) => unreachable += file.bytes,
                Err(stop) => {
                    end = Err(stop);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        match visited {
            Err(error) if storage::is_missing(&error) => {
                return self.refuse(format!("{space} space not found."));
            }
            Err(error) => self.fail(format!("Unable to examine space {space}; {}", error_text(&error))),
            Ok(()) => {}
        }
        end?;
        self.report(&audit);
        let files = counted(files, "file", "files");
        self.message(format!(
            "Space {shown} has {files} with {bytes} bytes in use ({unreachable} unreachable)."
        ));
        Ok(())
    }

    /// Reports whether a data file has a name, at the end. One without any trace of a name counts as if it had
    /// one, as with XRootD: nobody knows whether it is a file of a client.
    fn audit_data_file(&mut self, file: &SpaceDataFile, audit: &mut Audit) -> CommandStep<bool> {
        let shown = |path: &Path| shown_bytes(path.as_os_str().as_bytes());
        let Some(name) = &file.name else {
            audit.problems += 1;
            self.message(format!("Missing pfn xref for data file {}", shown(&file.path)));
            return Ok(true);
        };
        let path = self.admin.logical_path(name);
        let target = path.as_ref().map(|path| self.admin.posix.link_target(path));
        match target {
            Some(Ok(Some(target))) if is_same_place(&target, &file.path) => return Ok(true),
            Some(Ok(_)) => {
                audit.problems += 1;
                self.message(format!(
                    "Data file {} is not that of its pfn {}",
                    shown(&file.path),
                    shown(name)
                ));
                return Ok(false);
            }
            Some(Err(error)) if !storage::is_missing(&error) => {
                self.fail(format!("Unable to examine {}; {}", shown(name), error_text(&error)));
                return Ok(false);
            }
            _ => {}
        }
        audit.problems += 1;
        self.message(format!("Data file xrefs missing pfn {}", shown(name)));
        let Some(path) = path else { return Ok(false) };
        if !self.may_fix(audit, "Create pfn symlink?", Preferred::Yes)? {
            return Ok(false);
        }
        let created = self.admin.posix.restore_name(&path, &file.path);
        let is_created = created.is_ok();
        self.repaired(created, "pfn symlink created.", audit);
        Ok(is_created)
    }

    /// Compares the usage of spaces with the sizes of their files.
    fn audit_usage(&mut self, wanted: Option<String>, audit: &Audit) -> CommandStep {
        let mut spaces: Vec<String> =
            self.admin.posix.partitions().into_iter().map(|(space, _)| space).collect();
        spaces.dedup();
        if spaces.is_empty() {
            return self.refuse("No outplace space has been configured.");
        }
        if let Some(wanted) = wanted {
            if !spaces.contains(&wanted) {
                return self.refuse(format!("{wanted} space not found."));
            }
            spaces = vec![wanted];
        }
        for space in spaces {
            self.audit_usage_of(&space, audit)?;
        }
        Ok(())
    }

    fn audit_usage_of(&mut self, space: &str, audit: &Audit) -> CommandStep {
        let (mut files, mut actual) = (0, 0u64);
        let mut count = |file: SpaceDataFile| {
            files += 1;
            actual = actual.saturating_add(file.bytes);
            ControlFlow::Continue(())
        };
        let visited = self.admin.posix.visit_space(space, &OsString::from_vec(Vec::new()), &mut count);
        if let Err(error) = visited {
            self.fail(format!("Unable to examine space {space}; {}", error_text(&error)));
            return Ok(());
        }
        let entries = match self.admin.posix.usage_entries() {
            Ok(Some(entries)) => entries,
            Ok(None) => return self.refuse("Usage is not being tracked."),
            Err(error) => return self.refuse(format!("Unable to read the usage; {}", error_text(&error))),
        };
        let claimed = entries.iter().find(|entry| entry.space == space);
        let claimed = claimed.map_or(0, |entry| entry.used - entry.purged + entry.staged + entry.adjusted);
        let files = counted(files, "file", "files");
        self.message(format!("Audit of {files} in {space} space completed with no errors."));
        self.message(format!("{:<9}{claimed:>12}", "Claimed:"));
        self.message(format!("{:<9}{actual:>12}", "Actual:"));
        if i64::try_from(actual) == Ok(claimed)
            || !self.may_fix(audit, "Fix usage information?", Preferred::No)?
        {
            return Ok(());
        }
        if let Err(error) = self.admin.posix.set_usage(space, actual) {
            self.fail(format!("Unable to fix the usage; {}", error_text(&error)));
        }
        Ok(())
    }
}

/// Reports whether two local paths are the same one. A link may name a directory by way of another link.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> {
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    };
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}
