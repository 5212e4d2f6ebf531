//! `query`: local and remote names, spaces, their usage, and the queue of transfers.

use super::attributes::now;
use super::tree::is_directory;
use super::words::{CommandOption, CommandWords, PathWord, parse_path};
use super::{CommandRun, CommandStep, error_text, shown_bytes};
use base::LogicalPath;
use residency::{TransferDirection, TransferEntry};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use storage::Backend as _;

const SPACE_OPTIONS: [CommandOption; 1] = [CommandOption::switch("recursive")];

/// The variables of the entries of the queue.
pub(crate) const VARIABLES: [&str; 12] =
    ["lfn", "lfncgi", "obj", "objcgi", "mode", "note", "op", "prty", "qwt", "rid", "tid", "tod"];

/// `query {pfn | rfn | space | usage | xfrq} …`.
pub(super) fn query(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let Some(kind) = words.text() else { return run.refuse("query type not specified.") };
    match kind.as_str() {
        "pfn" => query_names(run, words, false),
        "rfn" => query_names(run, words, true),
        "space" => query_space(run, words),
        "usage" => query_usage(run, words.text()),
        "xfrq" => query_queue(run, words),
        _ => run.refuse(format!("Invalid query type - {kind}")),
    }
}

fn query_names(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>, is_remote: bool) -> CommandStep {
    let mut has_any = false;
    while let Some(word) = words.next() {
        has_any = true;
        // A name that looks like the content of a directory is that of a file here.
        let path = match parse_path(word) {
            Ok(path) => path,
            Err(text) => {
                run.fail(text);
                continue;
            }
        };
        let root = run.admin.effective.residency.remote_root.value.as_deref().unwrap_or_default();
        let line = match is_remote {
            true => shown_bytes(residency::remote_name(root, &path).into_vec()),
            false => run.admin.shown_local(&path),
        };
        run.message(line);
    }
    if has_any { Ok(()) } else { run.refuse("lfn not specified.") }
}

fn query_space(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let is_recursive = run.options(words, &SPACE_OPTIONS)?.has("recursive");
    let partitions = run.admin.posix.partitions();
    if partitions.is_empty() {
        return run.refuse("No outplace space has been configured.");
    }
    let Some(mut word) = run.next_path(words)? else {
        for (space, directory) in partitions {
            run.message(format!("{space} {}/ xa", shown_bytes(directory.as_os_str().as_bytes())));
        }
        return Ok(());
    };
    loop {
        query_space_of(run, &word, is_recursive)?;
        match run.next_path(words)? {
            Some(next) => word = next,
            None => return Ok(()),
        }
    }
}

fn query_space_of(
    run: &mut CommandRun<'_>,
    PathWord { path, .. }: &PathWord,
    is_recursive: bool,
) -> CommandStep {
    let line = |run: &CommandRun<'_>, path: &LogicalPath| {
        format!("{} {}", run.admin.posix.space_of(path), run.admin.shown_local(path))
    };
    match run.admin.posix.stat(path) {
        Err(error) => {
            let local = run.admin.shown_local(path);
            run.fail(format!("Unable to query {local}; {}", error_text(&error)));
            Ok(())
        }
        Ok(status) if is_directory(&status) => run.walk(path, is_recursive, &mut |run, found| {
            let line = line(run, found.path);
            run.message(line);
            Ok(())
        }),
        Ok(_) => {
            let line = line(run, path);
            run.message(line);
            Ok(())
        }
    }
}

fn query_usage(run: &mut CommandRun<'_>, wanted: Option<String>) -> CommandStep {
    let entries = match run.admin.posix.usage_entries() {
        Ok(Some(entries)) => entries,
        Ok(None) => return run.refuse("Usage is not being tracked."),
        Err(error) => return run.refuse(format!("Unable to read the usage; {}", error_text(&error))),
    };
    if let Some(wanted) = &wanted
        && !entries.iter().any(|entry| entry.space == *wanted)
    {
        return run.refuse(format!("Space {wanted} not found."));
    }
    for entry in entries.into_iter().filter(|entry| wanted.as_ref().is_none_or(|name| *name == entry.space)) {
        run.message(format!("Space {}", entry.space));
        let effective = entry.used - entry.purged + entry.staged + entry.adjusted;
        for (number, what) in [
            (entry.used, "Used"),
            (entry.staged, "Staged"),
            (entry.purged, "Purged"),
            (entry.adjusted, "Adjust"),
            (effective, "Effective"),
        ] {
            run.message(format!("{number:>20} {what}"));
        }
    }
    Ok(())
}

fn query_queue(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let mut variables = Vec::new();
    while let Some(name) = words.text() {
        match VARIABLES.iter().find(|known| **known == name) {
            Some(known) => variables.push(*known),
            None => return run.refuse(format!("Invalid xfrq variable - {name}")),
        }
    }
    if variables.is_empty() {
        variables.push("lfn");
    }
    let directory = run.admin.effective.transfer_directory();
    let shown = shown_bytes(directory.as_os_str().as_bytes());
    if !residency::has_queue(&directory) {
        run.fail(format!("No transfer queues found in {shown}/"));
        return run.refuse("Unable to list the xfrq.");
    }
    let mut has_any = false;
    let console = &mut *run.console;
    let listed = residency::visit_queue(&directory, &mut |entry| {
        has_any = true;
        let values = variables.iter().map(|name| entry_value(&entry, name) + " ");
        console.result(&values.collect::<String>());
    });
    match listed {
        Ok(()) if !has_any => run.message("No entries found."),
        Ok(()) => {}
        Err(error) => {
            run.fail(error.to_string());
            return run.refuse("Unable to list the xfrq.");
        }
    }
    Ok(())
}

/// Returns the value of a variable of an entry.
pub(crate) fn entry_value(entry: &TransferEntry, name: &str) -> String {
    let path = entry.key.path.escaped();
    match name {
        "lfn" | "obj" => path,
        "lfncgi" | "objcgi" => path + "?",
        "mode" => "w".to_owned(),
        "note" => "-".to_owned(),
        "op" => match entry.key.direction {
            TransferDirection::In => "+".to_owned(),
            TransferDirection::Out if entry.removes => "^".to_owned(),
            TransferDirection::Out => "&".to_owned(),
        },
        "prty" => entry.priority.number().to_string(),
        "qwt" => now().saturating_sub(i64::try_from(entry.added).unwrap_or(i64::MAX)).max(0).to_string(),
        "rid" => one_word(&entry.id),
        "tid" => one_word(&entry.client),
        _ => entry.added.to_string(),
    }
}

/// Returns a text as one word of a line; `-` for none.
fn one_word(text: &str) -> String {
    let is_separator = |c: char| c.is_whitespace() || c.is_control();
    if text.is_empty() { "-".to_owned() } else { text.replace(is_separator, "_") }
}
