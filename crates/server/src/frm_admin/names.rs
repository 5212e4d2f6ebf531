//! `mv`, `rm` and `reloc`: the names of files, and the spaces that hold their data.

use super::console::Preferred;
use super::tree::is_directory;
use super::words::{CommandOption, CommandWords, PathWord};
use super::{CommandRun, CommandStep, FrmAdmin, counted, error_text, shown_bytes};
use base::LogicalPath;
use rustix::io::Errno;
use std::io;
use storage::{Backend as _, COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyTime, ExistingName};

const REMOVE_OPTIONS: [CommandOption; 4] = [
    CommandOption::switch("echo"),
    CommandOption::switch("force"),
    CommandOption::switch("notify"),
    CommandOption::switch("recursive"),
];

/// Number of names that are read from a directory at once.
const NAMES_AT_ONCE: usize = 512;

/// Greatest depth of directories that are removed.
const DEPTH_MAX: u32 = 512;

/// The state of a removal.
struct RemovalCount {
    echoes: bool,
    files: u64,
    directories: u64,
    is_complete: bool,
}

/// Renames a file or directory. What mass storage has is under the old name, so the file counts as one
/// without a copy.
fn rename_file(admin: &FrmAdmin, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
    let is_kept = |path: &LogicalPath| {
        admin.export(path).is_some_and(|export| export.migrate || export.purge || export.stage)
    };
    let status = admin.posix.stat(from)?;
    if is_kept(from) {
        if is_directory(&status) {
            if !admin.posix.list(from)?.next(1)?.is_empty() {
                return Err(Errno::NOTEMPTY.into());
            }
        } else {
            let file = admin.hold(from)?;
            if file.attribute(COPY_TIME_ATTRIBUTE)?.is_some() {
                file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime::NEVER.encode())?;
                file.remove_attribute(COPY_RECORD_ATTRIBUTE)?;
                file.sync()?;
            }
        }
    }
    admin.posix.rename(from, to, ExistingName::Replace, None)
}

/// `mv OLD NEW`.
pub(super) fn rename(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let Some(PathWord { path: from, .. }) = run.next_path(words)? else {
        return run.refuse("mv oldlfn not specified.");
    };
    let Some(PathWord { path: to, .. }) = run.next_path(words)? else {
        return run.refuse("mv newlfn not specified.");
    };
    let (from_text, to_text) = (from.text().into_owned(), to.text().into_owned());
    let kind = |path: &LogicalPath| {
        run.admin.export(path).map(|export| (export.stage, export.migrate, export.purge, export.in_place))
    };
    if kind(&from) != kind(&to) {
        return run.refuse(format!(
            "Unable to rename {from_text}; {to_text} is in an export with other attributes"
        ));
    }
    let renamed = match (run.admin.posix.has_name(&from), run.admin.posix.has_name(&to)) {
        (Ok(true), Ok(true)) => Err(Errno::EXIST.into()),
        (Ok(true), Ok(false)) => rename_file(run.admin, &from, &to),
        (Ok(false), _) => Err(Errno::NOENT.into()),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    match renamed {
        Ok(()) => run.message(format!("{from_text} renamed to {to_text}")),
        Err(error) => run.fail(format!("Unable to rename {from_text}; {}", error_text(&error))),
    }
    Ok(())
}

/// `reloc FILE SPACE[:PARTITION]`.
pub(super) fn relocate(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let Some(PathWord { path, .. }) = run.next_path(words)? else {
        return run.refuse("reloc lfn not specified.");
    };
    let Some(space) = words.next() else { return run.refuse("reloc target not specified.") };
    let (space, shown) = (shown_bytes(space), path.text().into_owned());
    match run.admin.posix.relocate(&path, &space) {
        Ok(()) => run.message(format!("{shown} relocated to space {space}")),
        Err(error) => run.fail(format!("Unable to reloc {shown}; {}", error_text(&error))),
    }
    Ok(())
}

/// `rm FILE…`.
pub(super) fn remove(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let options = run.options(words, &REMOVE_OPTIONS)?;
    if options.has("notify") {
        return run.refuse("-notify is not supported: the server finds out by itself that files are gone");
    }
    let (is_forced, is_recursive) = (options.has("force"), options.has("recursive"));
    let mut removal =
        RemovalCount { echoes: options.has("echo"), files: 0, directories: 0, is_complete: true };
    let Some(mut word) = run.next_path(words)? else { return run.refuse("rm lfn not specified.") };
    let end = loop {
        match remove_word(run, &word, (is_forced, is_recursive), &mut removal) {
            Ok(()) => {}
            Err(end) => break Err(end),
        }
        match run.next_path(words) {
            Ok(Some(next)) => word = next,
            Ok(None) => break Ok(()),
            Err(end) => break Err(end),
        }
    };
    let files = counted(removal.files, "file", "files");
    let directories = counted(removal.directories, "directory", "directories");
    match removal.is_complete {
        true => run.message(format!("{files} and {directories} deleted.")),
        false => run.message(format!("rm incomplete; only {files} and {directories} deleted.")),
    }
    end
}

fn remove_word(
    run: &mut CommandRun<'_>,
    PathWord { path, is_content }: &PathWord,
    (is_forced, is_recursive): (bool, bool),
    removal: &mut RemovalCount,
) -> CommandStep {
    // The last component is not followed: a link to a directory is removed as a link.
    let is_directory = !matches!(run.admin.posix.link_target(path), Ok(Some(_)))
        && run.admin.posix.stat(path).is_ok_and(|status| is_directory(&status));
    if !is_directory {
        remove_one(run, path, removal);
        return Ok(());
    }
    if (is_recursive || *is_content) && !is_forced {
        let shown = path.text();
        let question = match is_content {
            true => format!("Remove EVERYTHING in {shown}?"),
            false => format!("Remove EVERYTHING starting at {shown}?"),
        };
        if !run.confirm(&question, Preferred::No, "rm")? {
            return Ok(());
        }
    }
    if is_recursive || *is_content {
        remove_content(run, path, is_recursive, removal, 0);
    }
    if !is_content {
        remove_directory(run, path, removal);
    }
    Ok(())
}

/// Removes what is in a directory. With `is_recursive` also the directories.
fn remove_content(
    run: &mut CommandRun<'_>,
    directory: &LogicalPath,
    is_recursive: bool,
    removal: &mut RemovalCount,
    depth: u32,
) {
    loop {
        let before = (removal.files, removal.directories);
        if let Err(error) = remove_listed(run, directory, is_recursive, removal, depth) {
            let local = run.admin.shown_local(directory);
            run.fail(format!("Unable to remove what is in {local}; {}", error_text(&error)));
            removal.is_complete = false;
            return;
        }
        // A listing may leave names out while others are removed.
        if !removal.is_complete || (removal.files, removal.directories) == before {
            return;
        }
    }
}

fn remove_listed(
    run: &mut CommandRun<'_>,
    directory: &LogicalPath,
    is_recursive: bool,
    removal: &mut RemovalCount,
    depth: u32,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other("it is too deep"));
    }
    let mut stream = run.admin.posix.list(directory)?;
    loop {
        let entries = stream.next(NAMES_AT_ONCE)?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            let Ok(path) = directory.join(&entry.name) else { continue };
            let is_link = entry.link && !matches!(run.admin.posix.link_target(&path), Ok(None));
            let is_directory = !is_link && stream.stat(&entry.name).is_ok_and(|status| is_directory(&status));
            match (is_directory, is_recursive) {
                (false, _) => remove_one(run, &path, removal),
                (true, true) => {
                    remove_content(run, &path, true, removal, depth + 1);
                    remove_directory(run, &path, removal);
                }
                (true, false) => {}
            }
        }
    }
}

fn remove_one(run: &mut CommandRun<'_>, path: &LogicalPath, removal: &mut RemovalCount) {
    let local = run.admin.shown_local(path);
    match run.admin.posix.remove_file(path) {
        Ok(()) => {
            removal.files += 1;
            if removal.echoes {
                run.message(format!("Local file {local} removed."));
            }
        }
        Err(error) => {
            removal.is_complete = false;
            run.fail(format!("Unable to remove {local}; {}", error_text(&error)));
        }
    }
}

fn remove_directory(run: &mut CommandRun<'_>, path: &LogicalPath, removal: &mut RemovalCount) {
    let local = run.admin.shown_local(path);
    match run.admin.posix.remove_directory(path) {
        Ok(()) => {
            removal.directories += 1;
            if removal.echoes {
                run.message(format!("Local directory {local} removed."));
            }
        }
        Err(error) => {
            removal.is_complete = false;
            run.fail(format!("Unable to remove directory {local}; {}", error_text(&error)));
        }
    }
}
