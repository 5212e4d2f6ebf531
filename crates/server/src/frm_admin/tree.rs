//! What commands about several files have in common: their options, walks over trees, and what is asked before
//! files are changed.

use super::console::Preferred;
use super::words::{CommandOption, CommandWords, GivenOptions, PathWord};
use super::{CommandRun, CommandStep, FrmAdmin, error_text};
use base::LogicalPath;
use config::ExportAttributes;
use rustix::fs::FileType;
use std::io;
use storage::{Backend as _, Metadata};

/// Number of names that are read from a directory at once.
const NAMES_AT_ONCE: usize = 512;

/// Ends of the names of files that old tools, or a failed copy, put beside a file.
const SIDE_SUFFIXES: [&[u8]; 8] =
    [b".anew", b".fail", b".lock", b".pin", b".mmap", b".mkeep", b".mlock", b".pfn"];

/// End of the name of the file that a failed copy leaves.
pub(super) const FAIL_SUFFIX: &[u8] = b".fail";

/// A name that a walk has found, which is not that of a directory.
pub(super) struct FoundName<'f> {
    pub(super) path: &'f LogicalPath,
    /// The status of the file. Links are followed; the error is that of one that leads nowhere, or out of the
    /// exports.
    pub(super) status: io::Result<Metadata>,
    /// The name is that of a link.
    pub(super) is_link: bool,
}

/// A required attribute of an export, and its name in questions.
pub(super) type NeededAttribute = (fn(&ExportAttributes) -> bool, &'static str);

/// How a command changes files.
pub(super) struct FileChange<'c> {
    /// The name of the command.
    pub(super) name: &'c str,
    /// The begin of the question for all files of a directory.
    pub(super) question: &'c str,
    /// The attribute that exports should have.
    pub(super) needed: Option<NeededAttribute>,
    /// Files in directories below are changed too, and nothing is asked for a directory.
    pub(super) is_recursive: bool,
    /// Nothing is asked.
    pub(super) is_forced: bool,
    /// The number of files that were changed.
    pub(super) changed: u64,
}

/// Reports whether a status is that of a directory.
pub(super) fn is_directory(status: &Metadata) -> bool {
    FileType::from_raw_mode(status.mode) == FileType::Directory
}

impl FrmAdmin {
    /// Reports whether a file lies beside another one, whose name is the begin of its own.
    fn is_side_file(&self, path: &LogicalPath) -> bool {
        let bytes = path.as_bytes();
        let base = SIDE_SUFFIXES.iter().find_map(|suffix| bytes.strip_suffix(*suffix));
        let base = base.filter(|base| !base.ends_with(b"/")).and_then(|base| LogicalPath::parse(base).ok());
        base.is_some_and(|base| self.posix.has_name(&base).unwrap_or(false))
    }
}

impl CommandRun<'_> {
    /// Passes all names in a directory to `visit` that are not those of directories or side files. Links to
    /// directories are not followed. Directories that cannot be read are reported.
    pub(super) fn walk(
        &mut self,
        directory: &LogicalPath,
        is_recursive: bool,
        visit: &mut dyn FnMut(&mut Self, FoundName<'_>) -> CommandStep,
    ) -> CommandStep {
        self.walk_all(directory, is_recursive, &mut |run, found| {
            if run.admin.is_side_file(found.path) { Ok(()) } else { visit(run, found) }
        })
    }

    /// As [`CommandRun::walk`], with side files.
    pub(super) fn walk_all(
        &mut self,
        directory: &LogicalPath,
        is_recursive: bool,
        visit: &mut dyn FnMut(&mut Self, FoundName<'_>) -> CommandStep,
    ) -> CommandStep {
        let mut pending = vec![directory.clone()];
        while let Some(directory) = pending.pop() {
            let unreadable = |error: &io::Error, admin: &FrmAdmin| {
                format!("Unable to open directory {}/; {}", admin.shown_local(&directory), error_text(error))
            };
            let mut stream = match self.admin.posix.list(&directory) {
                Ok(stream) => stream,
                Err(error) => {
                    self.fail(unreadable(&error, self.admin));
                    continue;
                }
            };
            loop {
                let entries = match stream.next(NAMES_AT_ONCE) {
                    Ok(entries) if entries.is_empty() => break,
                    Ok(entries) => entries,
                    Err(error) => {
                        self.fail(unreadable(&error, self.admin));
                        break;
                    }
                };
                for entry in entries {
                    let Ok(path) = directory.join(&entry.name) else { continue };
                    let is_link = entry.link && !matches!(self.admin.posix.link_target(&path), Ok(None));
                    let status = stream.stat(&entry.name);
                    if let Ok(status) = &status
                        && FileType::from_raw_mode(status.mode) != FileType::RegularFile
                    {
                        if is_directory(status) && is_recursive && !is_link {
                            pending.push(path);
                        }
                        continue;
                    }
                    visit(self, FoundName { path: &path, status, is_link })?;
                }
            }
        }
        Ok(())
    }

    /// Reads the next path of a command line. `None` after the last one.
    pub(super) fn next_path(&mut self, words: &mut CommandWords<'_>) -> CommandStep<Option<PathWord>> {
        let Some(word) = words.next() else { return Ok(None) };
        match PathWord::parse(word) {
            Ok(path) => Ok(Some(path)),
            Err(text) => self.refuse(text),
        }
    }

    /// Changes the files that the rest of a command line names.
    pub(super) fn change_files(
        &mut self,
        words: &mut CommandWords<'_>,
        change: &mut FileChange<'_>,
        apply: &mut dyn FnMut(&FrmAdmin, &LogicalPath) -> Result<(), String>,
    ) -> CommandStep {
        while let Some(word) = self.next_path(words)? {
            self.change_path(&word, change, apply)?;
        }
        Ok(())
    }

    fn change_path(
        &mut self,
        PathWord { path, is_content }: &PathWord,
        change: &mut FileChange<'_>,
        apply: &mut dyn FnMut(&FrmAdmin, &LogicalPath) -> Result<(), String>,
    ) -> CommandStep {
        let shown = path.text().into_owned();
        let lacks = |admin: &FrmAdmin, path: &LogicalPath| {
            change.needed.filter(|(has, _)| !admin.export(path).is_some_and(has)).map(|(_, name)| name)
        };
        let is_outside = lacks(self.admin, path);
        if let Some(attribute) = is_outside.filter(|_| !change.is_forced) {
            let question = format!("{shown} is not {attribute}; continue?");
            if !self.confirm(&question, Preferred::No, change.name)? {
                return Ok(());
            }
        }
        let status = match self.admin.posix.stat(path) {
            Ok(status) => status,
            Err(error) => {
                self.fail(format!("Unable to {} {shown}; {}", change.name, error_text(&error)));
                return Ok(());
            }
        };
        if !is_directory(&status) {
            self.apply_change(path, change, apply);
            return Ok(());
        }
        if !is_content && !change.is_recursive && !change.is_forced {
            let question = format!("{} ALL files in directory {shown}", change.question);
            if !self.confirm(&question, Preferred::No, change.name)? {
                return Ok(());
            }
        }
        let is_recursive = change.is_recursive;
        self.walk(path, is_recursive, &mut |run, found| {
            // The question was about the export of the directory.
            let is_wanted =
                change.needed.is_none_or(|(has, _)| run.admin.export(found.path).is_some_and(has));
            if is_wanted || is_outside.is_some() {
                run.apply_change(found.path, change, apply);
            }
            Ok(())
        })
    }

    fn apply_change(
        &mut self,
        path: &LogicalPath,
        change: &mut FileChange<'_>,
        apply: &mut dyn FnMut(&FrmAdmin, &LogicalPath) -> Result<(), String>,
    ) {
        match apply(self.admin, path) {
            Ok(()) => change.changed += 1,
            Err(text) => self.fail(format!("Unable to {} {}; {text}", change.name, path.text())),
        }
    }

    /// Reads the options of a command that changes files, and checks that paths follow.
    pub(super) fn options_of_change(
        &mut self,
        words: &mut CommandWords<'_>,
        (name, known): (&str, &[CommandOption]),
    ) -> CommandStep<GivenOptions> {
        let options = self.options(words, known)?;
        if words.is_empty() { self.refuse(format!("{name} lfn not specified.")) } else { Ok(options) }
    }

    /// Reads the options of a command.
    pub(super) fn options(
        &mut self,
        words: &mut CommandWords<'_>,
        known: &[CommandOption],
    ) -> CommandStep<GivenOptions> {
        match words.options(known) {
            Ok(options) => Ok(options),
            Err(text) => self.refuse(text),
        }
    }

    /// Reports whether there is a file at a path; a failure is reported.
    pub(super) fn is_file(&mut self, path: &LogicalPath) -> bool {
        match self.admin.posix.stat(path) {
            Ok(status) if FileType::from_raw_mode(status.mode) == FileType::RegularFile => true,
            Ok(_) => {
                self.fail(format!("{} is not a file", path.text()));
                false
            }
            Err(error) => {
                self.fail(format!("Unable to access {}; {}", path.text(), error_text(&error)));
                false
            }
        }
    }
}
