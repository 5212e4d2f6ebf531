//! `scalla chmod`.

use client::{Cause, Error, FileSystem, RemotePath, StatInfo, Url, join_bounded};

use super::console::Console;
use super::context::Context;
use super::mkdir_rmdir::permissions;
use super::mv_truncate::at_holders;

/// Directory entries changed in one batch.
const STEP: usize = 256;

/// Set permissions of files and directories.
#[derive(clap::Args, Debug)]
pub(crate) struct ChmodCommand {
    /// Permissions (644, rw-r--r--) or changes, separated by commas (u+w, go-rwx, a=rX).
    #[arg(value_name = "MODE", value_parser = mode, allow_hyphen_values = true)]
    mode: Mode,
    /// Files and directories to change; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// Change directories with everything in them.
    #[arg(long, short = 'R')]
    recursive: bool,
}

/// The new permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Mode {
    These(u16),
    Changed(Vec<PermissionChange>),
}

/// A change of permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PermissionChange {
    /// Bits of the classes concerned (user, group, others).
    who: u16,
    sign: char,
    /// `rwx` for each of owner, group and others.
    bits: u16,
    /// Set for `X`: also execution, for directories and for files that some class may already
    /// execute.
    search: bool,
}

fn mode(text: &str) -> Result<Mode, String> {
    if let Ok(mode) = permissions(text) {
        return Ok(Mode::These(mode));
    }
    let changes: Option<Vec<PermissionChange>> = text.split(',').map(parse_change).collect();
    changes
        .map(Mode::Changed)
        .ok_or_else(|| "no permissions: write 644, rw-r--r--, or changes such as u+w,go-rwx".to_owned())
}

fn parse_change(text: &str) -> Option<PermissionChange> {
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let mut letters = rest.chars();
    let sign = letters.next()?;
    let mut mask = 0;
    for letter in who.chars() {
        mask |= match letter {
            'u' => 0o700,
            'g' => 0o070,
            'o' => 0o007,
            'a' => 0o777,
            _ => return None,
        };
    }
    let (mut bits, mut search) = (0, false);
    for letter in letters {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => search = true,
            _ => return None,
        }
    }
    Some(PermissionChange { who: if mask == 0 { 0o777 } else { mask }, sign, bits, search })
}

impl Mode {
    /// Returns the new permissions of an entry that has `old`.
    fn of(&self, old: u16, is_dir: bool) -> u16 {
        let changes = match self {
            Self::These(mode) => return *mode,
            Self::Changed(changes) => changes,
        };
        changes.iter().fold(old & 0o777, |mode, change| {
            let search = if change.search && (is_dir || mode & 0o111 != 0) { 0o111 } else { 0 };
            let bits = (change.bits | search) & change.who;
            match change.sign {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ => (mode & !change.who) | bits,
            }
        })
    }

    /// Returns the new permissions of an entry with this status.
    fn for_stat(&self, url: &Url, stat: &StatInfo) -> Result<u16, Error> {
        match (self, &stat.more) {
            (Self::These(mode), _) => Ok(*mode),
            (Self::Changed(_), Some(more)) => {
                Ok(self.of(u16::try_from(more.mode & 0o777).unwrap_or(0), stat.is_dir()))
            }
            (Self::Changed(_), None) => {
                let text = "the server does not tell what the permissions are; name all of them, such as 644";
                Err(Error::new("chmod", url, Cause::BadArgument(text.to_owned())))
            }
        }
    }
}

impl ChmodCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let urls = context.expand(console, &self.urls).await?;
        let known = urls.iter().map(|url| (url.clone(), None)).collect();
        self.change(context, console, known).await;
        for url in urls.iter().filter(|_| self.recursive) {
            // A failure above has already been reported. A file has no entries below it.
            if !context.files(url).is_dir(&url.path).await.unwrap_or(false) {
                continue;
            }
            let Some(mut walk) = context.walk(console, url).await else { continue };
            while let Some(mut directory) = walk.next().await {
                walk.enter_all(&mut directory);
                directory.failed.iter().for_each(|error| console.fail(&directory.url, error));
                let mut entries = directory.entries.iter();
                loop {
                    let some = entries.by_ref().take(STEP);
                    let known: Vec<_> = some.map(|entry| (directory.child(&entry), entry.stat)).collect();
                    if known.is_empty() {
                        break;
                    }
                    self.change(context, console, known).await;
                    console.flush_if_due().await?;
                }
            }
        }
        Ok(())
    }

    async fn change(&self, context: &Context, console: &Console, known: Vec<(Url, Option<StatInfo>)>) {
        let set = |(url, stat): (Url, Option<StatInfo>)| {
            let (files, mode) = (context.files(&url), self.mode.clone());
            async move {
                let done = set(&files, &url, stat, &mode).await;
                (url, done)
            }
        };
        for (url, done) in join_bounded(known, set).await {
            if let Err(error) = done {
                console.fail(&url, &error);
            }
        }
    }
}

async fn set(files: &FileSystem, url: &Url, stat: Option<StatInfo>, mode: &Mode) -> Result<(), Error> {
    let mode = match (mode, stat) {
        (Mode::These(mode), _) => *mode,
        (mode, Some(stat)) => mode.for_stat(url, &stat)?,
        (mode, None) => mode.for_stat(url, &files.stat(&url.path).await?)?,
    };
    let set = |server: FileSystem, path: RemotePath| async move { server.chmod(&path, mode).await };
    at_holders(files, &url.path, set).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_and_changes_of_them() {
        let table = [
            ("640", 0o777, false, 0o640),
            ("rwxr-xr-x", 0, true, 0o755),
            ("u+w", 0o444, false, 0o644),
            ("+x", 0o644, false, 0o755),
            ("go-rwx", 0o755, false, 0o700),
            ("a=rX", 0o600, false, 0o444),
            ("a=rX", 0o700, false, 0o555),
            ("a=rX", 0o600, true, 0o555),
            ("u=rw,go=", 0o777, false, 0o600),
            ("-w", 0o666, false, 0o444),
        ];
        for (text, old, is_dir, new) in table {
            assert_eq!(mode(text).map(|mode| mode.of(old, is_dir)), Ok(new), "{text} {old:o}");
        }
        for bad in ["", "u", "z+w", "u+z", "u~w", "u+w,", "1777", "8"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
