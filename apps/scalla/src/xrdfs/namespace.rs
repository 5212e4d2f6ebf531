//! Commands that change the name space, and `prepare`.

use super::session::{ResolvedPath, XrdfsSession, split_flags};
use crate::printer::out;
use crate::xrootd_compat::{INVALID_ARGUMENTS, XrdClStatus, format};
use client::xroot::flags::PrepareOptions;

/// Mode of new directories.
const DIRECTORY_MODE: u16 = 0o750;
/// The highest priority of a prepare.
const PRIORITY_MAX: i64 = 3;

pub(super) fn mkdir(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let (mut parents, mut mode, mut path) = (false, DIRECTORY_MODE, None);
    for word in arguments {
        if *word == "-p" {
            parents = true;
        } else if let Some(bits) = word.strip_prefix("-m") {
            mode = format::mode_bits(bits).ok_or(INVALID_ARGUMENTS)?;
        } else {
            path = Some(word);
        }
    }
    let ResolvedPath { fs, path, .. } = shell.target(path.ok_or(INVALID_ARGUMENTS)?)?;
    shell.wait(fs.mkdir(&path, mode, parents))
}

pub(super) fn rmdir(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[path] = arguments else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, .. } = shell.target(path)?;
    shell.wait(fs.rmdir(&path))
}

/// Removes files. A failure does not stop the removal of the others. Reports each failure.
pub(super) fn rm(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    if arguments.is_empty() {
        return Err(INVALID_ARGUMENTS);
    }
    let targets: Result<Vec<ResolvedPath>, XrdClStatus> =
        arguments.iter().map(|path| shell.target(path)).collect();
    let mut result = Ok(());
    for ResolvedPath { fs, path, shown } in targets? {
        let removed = shell.wait(fs.rm(&path));
        let outcome = removed.as_ref().map_or_else(XrdClStatus::brief, |()| "[SUCCESS] ".to_owned());
        out().line(format_args!("rm {shown} : {outcome}"));
        if removed.is_err() {
            result = removed;
        }
    }
    result
}

pub(super) fn mv(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[old, new] = arguments else { return Err(INVALID_ARGUMENTS) };
    // The cgi of the first path applies to both.
    let (ResolvedPath { fs, path, .. }, new) = (shell.target(old)?, shell.target(new)?);
    shell.wait(fs.mv(&path, &new.path))
}

pub(super) fn chmod(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[path, mode] = arguments else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, .. } = shell.target(path)?;
    let mode = format::mode_bits(mode).ok_or(INVALID_ARGUMENTS)?;
    shell.wait(fs.chmod(&path, mode))
}

pub(super) fn truncate(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[path, size] = arguments else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, .. } = shell.target(path)?;
    let size = format::integer(size).ok_or(INVALID_ARGUMENTS)?;
    // The server rejects invalid sizes.
    shell.wait(fs.truncate(&path, size.cast_unsigned()))
}

pub(super) fn prepare(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let (mut letters, mut words, mut priority, mut given_up) = (String::new(), Vec::new(), 0, None);
    let mut left = arguments.iter();
    while let Some(&word) = left.next() {
        match word {
            "-p" => {
                let value = left.next().and_then(|value| format::integer(value));
                let value = value.filter(|value| (0..=PRIORITY_MAX).contains(value));
                priority = value.and_then(|value| u8::try_from(value).ok()).ok_or(INVALID_ARGUMENTS)?;
            }
            "-a" => given_up = Some(*left.next().ok_or(INVALID_ARGUMENTS)?),
            _ => {
                let (letter, more) = split_flags(&[word], "cfswe");
                letters.push_str(&letter);
                words.extend(more);
            }
        }
    }
    if words.is_empty() && given_up.is_none() {
        return Err(INVALID_ARGUMENTS);
    }
    let mut options = PrepareOptions::NONE;
    for letter in letters.chars() {
        options |= match letter {
            'c' => PrepareOptions::COLOC,
            'f' => PrepareOptions::FRESH,
            's' => PrepareOptions::STAGE,
            'w' => PrepareOptions::WMODE,
            _ => PrepareOptions::NONE,
        };
    }
    if let Some(id) = given_up {
        options |= PrepareOptions::CANCEL;
        words.insert(0, id);
    }
    let mut answer = String::new();
    if letters.contains('e') {
        shell.wait(shell.fs.evict(&words))?;
    } else {
        answer = shell.wait(shell.fs.prepare(&words, options, priority))?;
    }
    if options.contains(PrepareOptions::STAGE) {
        out().lines(format_args!("{answer}\n"));
    }
    Ok(())
}
