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

impl CommandRun<'_> {
    /// `query {pfn | rfn | space | usage | xfrq} …`.
    pub(super) fn query(&mut self, words: &mut CommandWords<'_>) -> CommandStep {
        let Some(kind) = words.text() else { return self.refuse("query type not specified.") };
        match kind.as_str() {
            "pfn" => self.query_names(words, false),
            "rfn" => self.query_names(words, true),
            "space" => self.query_space(words),
            "usage" => self.query_usage(words.text()),
            "xfrq" => self.query_queue(words),
            _ => self.refuse(format!("Invalid query type - {kind}")),
        }
    }

    fn query_names(&mut self, words: &mut CommandWords<'_>, is_remote: bool) -> CommandStep {
        let mut has_any = false;
        while let Some(word) = words.next() {
            has_any = true;
            // A name that looks like the content of a directory is that of a file here.
            let path = match parse_path(word) {
                Ok(path) => path,
                Err(text) => {
                    self.fail(text);
                    continue;
                }
            };
            let root = self.admin.effective.residency.remote_root.value.as_deref().unwrap_or_default();
            let line = match is_remote {
                true => shown_bytes(residency::remote_name(root, &path).into_vec()),
                false => self.admin.shown_local(&path),
            };
            self.message(line);
        }
        if has_any { Ok(()) } else { self.refuse("lfn not specified.") }
    }

    fn query_space(&mut self, words: &mut CommandWords<'_>) -> CommandStep {
        let is_recursive = self.options(words, &SPACE_OPTIONS)?.has("recursive");
        let partitions = self.admin.posix.partitions();
        if partitions.is_empty() {
            return self.refuse("No outplace space has been configured.");
        }
        let Some(mut word) = self.next_path(words)? else {
            for (space, directory) in partitions {
                self.message(format!("{space} {}/ xa", shown_bytes(directory.as_os_str().as_bytes())));
            }
            return Ok(());
        };
        loop {
            self.query_space_of(&word, is_recursive)?;
            match self.next_path(words)? {
                Some(next) => word = next,
                None => return Ok(()),
            }
        }
    }

    fn query_space_of(&mut self, PathWord { path, .. }: &PathWord, is_recursive: bool) -> CommandStep {
        let line = |run: &Self, path: &LogicalPath| {
            format!("{} {}", run.admin.posix.space_of(path), run.admin.shown_local(path))
        };
        match self.admin.posix.stat(path) {
            Err(error) => {
                let local = self.admin.shown_local(path);
                self.fail(format!("Unable to query {local}; {}", error_text(&error)));
                Ok(())
            }
            Ok(status) if is_directory(&status) => self.walk(path, is_recursive, &mut |run, found| {
                let line = line(run, found.path);
                run.message(line);
                Ok(())
            }),
            Ok(_) => {
                let line = line(self, path);
                self.message(line);
                Ok(())
            }
        }
    }

    fn query_usage(&mut self, wanted: Option<String>) -> CommandStep {
        let entries = match self.admin.posix.usage_entries() {
            Ok(Some(entries)) => entries,
            Ok(None) => return self.refuse("Usage is not being tracked."),
            Err(error) => return self.refuse(format!("Unable to read the usage; {}", error_text(&error))),
        };
        if let Some(wanted) = &wanted
            && !entries.iter().any(|entry| entry.space == *wanted)
        {
            return self.refuse(format!("Space {wanted} not found."));
        }
        for entry in
            entries.into_iter().filter(|entry| wanted.as_ref().is_none_or(|name| *name == entry.space))
        {
            self.message(format!("Space {}", entry.space));
            let effective = entry.used - entry.purged + entry.staged + entry.adjusted;
            for (number, what) in [
                (entry.used, "Used"),
                (entry.staged, "Staged"),
                (entry.purged, "Purged"),
                (entry.adjusted, "Adjust"),
                (effective, "Effective"),
            ] {
                self.message(format!("{number:>20} {what}"));
            }
        }
        Ok(())
    }

    fn query_queue(&mut self, words: &mut CommandWords<'_>) -> CommandStep {
        let mut variables = Vec::new();
        while let Some(name) = words.text() {
            match VARIABLES.iter().find(|known| **known == name) {
                Some(known) => variables.push(*known),
                None => return self.refuse(format!("Invalid xfrq variable - {name}")),
            }
        }
        if variables.is_empty() {
            variables.push("lfn");
        }
        let directory = self.admin.effective.transfer_directory();
        let shown = shown_bytes(directory.as_os_str().as_bytes());
        if !residency::has_queue(&directory) {
            self.fail(format!("No transfer queues found in {shown}/"));
            return self.refuse("Unable to list the xfrq.");
        }
        let mut has_any = false;
        let console = &mut *self.console;
        let listed = residency::visit_queue(&directory, &mut |entry| {
            has_any = true;
            let values = variables.iter().map(|name| entry_value(&entry, name) + " ");
            console.result(&values.collect::<String>());
        });
        match listed {
            Ok(()) if !has_any => self.message("No entries found."),
            Ok(()) => {}
            Err(error) => {
                self.fail(error.to_string());
                return self.refuse("Unable to list the xfrq.");
            }
        }
        Ok(())
    }
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
