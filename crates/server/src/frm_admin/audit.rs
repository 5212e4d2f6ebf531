//! `audit`: finds what does not fit together in the name space and in spaces, and repairs it.

use super::console::Preferred;
use super::find::copied;
use super::tree::FoundName;
use super::words::{CommandOption, CommandWords, GivenOptions};
use super::{CommandRun, CommandStep, counted, error_text, shown_bytes};
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

/// `audit {names DIRECTORY | space NAME[:PARTITION] | usage [NAME]}`.
pub(super) fn audit(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options(words, &OPTIONS)?;
    let Some(kind) = words.text() else { return run.refuse("audit type not specified.") };
    let mut audit = Audit { options, ..Audit::default() };
    match kind.as_str() {
        "names" => {
            let Some(word) = run.next_path(words)? else {
                return run.refuse("audit target not specified.");
            };
            let is_recursive = audit.options.has("recursive");
            let end =
                run.walk(&word.path, is_recursive, &mut |run, found| audit_name(run, found, &mut audit));
            report(run, &audit);
            end
        }
        "space" => match words.next() {
            Some(space) => audit_space(run, space, audit),
            None => run.refuse("audit target not specified."),
        },
        "usage" => audit_usage(run, words.text(), &audit),
        _ => run.refuse(format!("Unknown audit type - {kind}")),
    }
}

fn report(run: &mut CommandRun<'_>, audit: &Audit) {
    let problems = counted(audit.problems, "problem", "problems");
    run.message(format!("{problems} found; {} fixed.", audit.fixed));
}

/// Asks whether a problem is to be repaired, if the administrator wants repairs at all.
fn may_fix(
    run: &mut CommandRun<'_>,
    audit: &Audit,
    question: &str,
    preferred: Preferred,
) -> CommandStep<bool> {
    match (audit.options.has("fix"), audit.options.has("force")) {
        (false, _) => Ok(false),
        (true, true) => Ok(true),
        (true, false) => run.confirm(question, preferred, NAME),
    }
}

/// Reports the result of a repair.
fn repaired(run: &mut CommandRun<'_>, result: io::Result<()>, what: &str, audit: &mut Audit) {
    match result {
        Ok(()) => {
            audit.fixed += 1;
            run.message(what);
        }
        Err(error) => run.fail(format!("Unable to fix it; {}", error_text(&error))),
    }
}

fn audit_name(run: &mut CommandRun<'_>, found: FoundName<'_>, audit: &mut Audit) -> CommandStep {
    let (path, local) = (found.path, run.admin.shown_local(found.path));
    if let Err(error) = &found.status {
        return audit_broken_link(run, &found, error, audit);
    }
    let file = match run.admin.hold(path) {
        Ok(file) => file,
        Err(error) => {
            run.fail(format!("Unable to examine {local}; {}", error_text(&error)));
            return Ok(());
        }
    };
    let wants_copy = run.admin.export(path).is_some_and(|export| export.migrate || export.purge);
    if wants_copy {
        match file.attribute(COPY_TIME_ATTRIBUTE) {
            Ok(Some(value)) if CopyTime::decode(&value).is_some() => {}
            Ok(_) => audit_copy_time(run, path, &local, audit)?,
            Err(error) => run.fail(format!("Unable to get copy time for {local}; {}", error_text(&error))),
        }
    }
    if found.is_link && matches!(run.admin.posix.space_data(path), Ok(Some(_))) {
        match file.attribute(NAME_ATTRIBUTE) {
            Ok(value) => audit_cross_reference(run, path, value, audit)?,
            Err(error) => run.fail(format!("Unable to get pfn xattr for {local}; {}", error_text(&error))),
        }
    }
    Ok(())
}

fn audit_broken_link(
    run: &mut CommandRun<'_>,
    found: &FoundName<'_>,
    error: &io::Error,
    audit: &mut Audit,
) -> CommandStep {
    let (path, local) = (found.path, run.admin.shown_local(found.path));
    let target = run.admin.posix.link_target(path).ok().flatten();
    let Some(target) = target.filter(|_| storage::is_missing(error)) else {
        run.fail(format!("Unable to examine {local}; {}", error_text(&copied(error))));
        return Ok(());
    };
    run.has_failed = true;
    audit.problems += 1;
    run.message(format!("Dangling link:  {local}"));
    run.message(format!("Missing target: {}", shown_bytes(target.as_os_str().as_bytes())));
    if may_fix(run, audit, "Remove symlink?", Preferred::No)? {
        // Only a link is removed, and not a file that has its name meanwhile.
        let is_link = matches!(run.admin.posix.link_target(path), Ok(Some(found)) if found == target);
        let removed = match is_link {
            true => run.admin.posix.remove_file(path),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        };
        repaired(run, removed, "Symlink removed.", audit);
    }
    Ok(())
}

fn audit_copy_time(
    run: &mut CommandRun<'_>,
    path: &LogicalPath,
    local: &str,
    audit: &mut Audit,
) -> CommandStep {
    audit.problems += 1;
    run.message(format!("No copy time for: {local}"));
    if may_fix(run, audit, "Set copy time?", Preferred::Yes)? {
        match audit.options.has("purgeable") {
            true => match run.admin.set_copied(path, audit.options.has("force")) {
                Ok(()) => repaired(run, Ok(()), "Copy time set.", audit),
                Err(text) => run.fail(format!("Unable to fix it; {text}")),
            },
            false => {
                let set = run.admin.set_uncopied(path);
                repaired(run, set, "Copy time set.", audit);
            }
        }
    }
    Ok(())
}

fn audit_cross_reference(
    run: &mut CommandRun<'_>,
    path: &LogicalPath,
    value: Option<Vec<u8>>,
    audit: &mut Audit,
) -> CommandStep {
    let name = run.admin.local_path(path);
    let local = run.admin.shown_local(path);
    match &value {
        Some(value) if value.strip_suffix(b"\0") == Some(name.as_os_str().as_bytes()) => return Ok(()),
        Some(value) => {
            run.message(format!("Incorrect pfn xref to {local}"));
            let other = value.split(|byte| *byte == 0).next().unwrap_or_default();
            run.message(format!("Data file refers to   {}", shown_bytes(other)));
        }
        None => run.message(format!("Missing pfn xref for  {local}")),
    }
    audit.problems += 1;
    if may_fix(run, audit, "Set pfn xref?", Preferred::Yes)? {
        let set = run.admin.posix.restore_cross_reference(path);
        repaired(run, set, "pfn xref set.", audit);
    }
    Ok(())
}

fn audit_space(run: &mut CommandRun<'_>, word: &[u8], mut audit: Audit) -> CommandStep {
    let shown = shown_bytes(word);
    let (space, begin) = match word.iter().position(|byte| *byte == b':') {
        Some(at) => (word.get(..at), word.get(at + 1..).unwrap_or_default()),
        None => (Some(word), &b""[..]),
    };
    let space = shown_bytes(space.unwrap_or_default());
    let (mut files, mut bytes, mut unreachable) = (0, 0, 0);
    let mut end = Ok(());
    let admin = run.admin;
    let visited = admin.posix.visit_space(&space, OsStr::from_bytes(begin), &mut |file| {
        files += 1;
        bytes += file.bytes;
        match audit_data_file(run, &file, &mut audit) {
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
            return run.refuse(format!("{space} space not found."));
        }
        Err(error) => run.fail(format!("Unable to examine space {space}; {}", error_text(&error))),
        Ok(()) => {}
    }
    end?;
    report(run, &audit);
    let files = counted(files, "file", "files");
    run.message(format!("Space {shown} has {files} with {bytes} bytes in use ({unreachable} unreachable)."));
    Ok(())
}

/// Reports whether a data file has a name, at the end. One without any trace of a name counts as if it had
/// one, as with XRootD: nobody knows whether it is a file of a client.
fn audit_data_file(run: &mut CommandRun<'_>, file: &SpaceDataFile, audit: &mut Audit) -> CommandStep<bool> {
    let shown = |path: &Path| shown_bytes(path.as_os_str().as_bytes());
    let Some(name) = &file.name else {
        audit.problems += 1;
        run.message(format!("Missing pfn xref for data file {}", shown(&file.path)));
        return Ok(true);
    };
    let path = run.admin.logical_path(name);
    let target = path.as_ref().map(|path| run.admin.posix.link_target(path));
    match target {
        Some(Ok(Some(target))) if is_same_place(&target, &file.path) => return Ok(true),
        Some(Ok(_)) => {
            audit.problems += 1;
            run.message(format!("Data file {} is not that of its pfn {}", shown(&file.path), shown(name)));
            return Ok(false);
        }
        Some(Err(error)) if !storage::is_missing(&error) => {
            run.fail(format!("Unable to examine {}; {}", shown(name), error_text(&error)));
            return Ok(false);
        }
        _ => {}
    }
    audit.problems += 1;
    run.message(format!("Data file xrefs missing pfn {}", shown(name)));
    let Some(path) = path else { return Ok(false) };
    if !may_fix(run, audit, "Create pfn symlink?", Preferred::Yes)? {
        return Ok(false);
    }
    let created = run.admin.posix.restore_name(&path, &file.path);
    let is_created = created.is_ok();
    repaired(run, created, "pfn symlink created.", audit);
    Ok(is_created)
}

/// Compares the usage of spaces with the sizes of their files.
fn audit_usage(run: &mut CommandRun<'_>, wanted: Option<String>, audit: &Audit) -> CommandStep {
    let mut spaces: Vec<String> = run.admin.posix.partitions().into_iter().map(|(space, _)| space).collect();
    spaces.dedup();
    if spaces.is_empty() {
        return run.refuse("No outplace space has been configured.");
    }
    if let Some(wanted) = wanted {
        if !spaces.contains(&wanted) {
            return run.refuse(format!("{wanted} space not found."));
        }
        spaces = vec![wanted];
    }
    for space in spaces {
        audit_usage_of(run, &space, audit)?;
    }
    Ok(())
}

fn audit_usage_of(run: &mut CommandRun<'_>, space: &str, audit: &Audit) -> CommandStep {
    let (mut files, mut actual) = (0, 0u64);
    let mut count = |file: SpaceDataFile| {
        files += 1;
        actual = actual.saturating_add(file.bytes);
        ControlFlow::Continue(())
    };
    let visited = run.admin.posix.visit_space(space, &OsString::from_vec(Vec::new()), &mut count);
    if let Err(error) = visited {
        run.fail(format!("Unable to examine space {space}; {}", error_text(&error)));
        return Ok(());
    }
    let entries = match run.admin.posix.usage_entries() {
        Ok(Some(entries)) => entries,
        Ok(None) => return run.refuse("Usage is not being tracked."),
        Err(error) => return run.refuse(format!("Unable to read the usage; {}", error_text(&error))),
    };
    let claimed = entries.iter().find(|entry| entry.space == space);
    let claimed = claimed.map_or(0, |entry| entry.used - entry.purged + entry.staged + entry.adjusted);
    let files = counted(files, "file", "files");
    run.message(format!("Audit of {files} in {space} space completed with no errors."));
    run.message(format!("{:<9}{claimed:>12}", "Claimed:"));
    run.message(format!("{:<9}{actual:>12}", "Actual:"));
    if i64::try_from(actual) == Ok(claimed) || !may_fix(run, audit, "Fix usage information?", Preferred::No)?
    {
        return Ok(());
    }
    if let Err(error) = run.admin.posix.set_usage(space, actual) {
        run.fail(format!("Unable to fix the usage; {}", error_text(&error)));
    }
    Ok(())
}

/// Reports whether two local paths are the same one. A link may name a directory by way of another link.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> {
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    };
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}
