//! The commands of `frm_admin`, XRootD's program for files with copies in mass storage, on a live tree.
//!
//! They work on the files themselves, beside the server or without one. The texts are those of XRootD.
//!
//! | file | content |
//! |---|---|
//! | `mod` | [`FrmAdmin`]: opens the tree of a configuration; runs a command |
//! | `console` | [`FrmConsole`]: where messages go and answers come from |
//! | `words` | options and paths of commands |
//! | `help` | the texts of `help` |
//! | `tree` | options, walks over files, and what is asked before they are changed |
//! | `attributes` | `mark`, `pin`, `mmap` and `makelf` |
//! | `pin_time` | the times of `pin` |
//! | `find` | `find` |
//! | `audit` | `audit` |
//! | `checksums` | `chksum` |
//! | `query` | `query` |
//! | `names` | `mv`, `rm` and `reloc` |

mod attributes;
mod audit;
mod checksums;
mod console;
mod find;
mod help;
mod names;
mod pin_time;
mod query;
mod tree;
mod words;

pub use console::FrmConsole;
pub(crate) use query::{VARIABLES, entry_value};

use crate::residency::remote_catalog;
use base::LogicalPath;
use config::{Effective, ExportAttributes};
use residency::RemoteCatalog;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::posix::Posix;
use storage::{HeldFile, TransferStorage as _};
use words::CommandWords;

/// The name of the program in its messages.
const PROGRAM: &str = "frm_admin";

/// Tries to open a file that another process has claimed for the moment, and the time between them.
const OPEN_TRIES: u32 = 40;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// The tree of a configuration, for the commands of an administrator.
pub struct FrmAdmin {
    posix: Posix,
    effective: Effective,
    catalog: Option<Arc<dyn RemoteCatalog>>,
}

/// A command that runs.
struct CommandRun<'a> {
    admin: &'a FrmAdmin,
    console: &'a mut dyn FrmConsole,
    has_failed: bool,
}

/// The end of a command that the administrator has aborted, or that cannot go on. Its reason was reported.
struct CommandEnd;

/// The result of a step of a command.
type CommandStep<T = ()> = Result<T, CommandEnd>;

impl FrmAdmin {
    /// Opens the tree of a configuration. The error names what cannot be used.
    pub fn open(mut effective: Effective) -> Result<Self, String> {
        // Only the server creates the usage log, which belongs to its user.
        let log = &mut effective.storage.accounting.value.log;
        if log.as_ref().is_some_and(|log| !usage_log(log).exists()) {
            *log = None;
        }
        let posix = Posix::new(&storage::posix::Config::from_effective(&effective.storage));
        let posix = posix.map_err(|error| error.to_string())?;
        let catalog = remote_catalog(&effective).map_err(|error| error.to_string())?;
        Ok(Self { posix, effective, catalog })
    }

    /// Runs a command. Reports whether it has succeeded.
    pub fn run(&self, words: &[Vec<u8>], console: &mut dyn FrmConsole) -> bool {
        let mut run = CommandRun { admin: self, console, has_failed: false };
        let mut words = CommandWords::new(words);
        let Some(command) = words.text() else { return true };
        let words = &mut words;
        let end = match command.as_str() {
            "audit" => audit::audit(&mut run, words),
            "chksum" => checksums::checksum(&mut run, words),
            "f" | "find" => find::find(&mut run, words),
            "help" => help::help(&mut run, words),
            "makelf" => attributes::make_lock_files(&mut run, words),
            "mark" => attributes::mark(&mut run, words),
            "mmap" => attributes::map_in_memory(&mut run, words),
            "mv" => names::rename(&mut run, words),
            "pin" => attributes::pin(&mut run, words),
            "q" | "query" => query::query(&mut run, words),
            "reloc" => names::relocate(&mut run, words),
            "rm" => names::remove(&mut run, words),
            _ => run.refuse(format!("Invalid command - {command}")),
        };
        end.is_ok() && !run.has_failed
    }

    /// Returns the attributes of the export of a path; `None` outside of all exports.
    fn export(&self, path: &LogicalPath) -> Option<&ExportAttributes> {
        self.effective.storage.export_of(&path.text()).map(|export| &export.attributes)
    }

    /// Returns the local path at which the name of a path is.
    fn local_path(&self, path: &LogicalPath) -> PathBuf {
        use storage::Backend as _;
        let stored = self.posix.stored_path(path);
        let stored = stored.as_deref().unwrap_or(path);
        let below = OsStr::from_bytes(stored.as_bytes().strip_prefix(b"/").unwrap_or_default());
        match &self.effective.storage.local_root.value {
            Some(root) => root.join(below),
            None => PathBuf::from("/").join(below),
        }
    }

    /// Returns the local path as text for messages.
    fn shown_local(&self, path: &LogicalPath) -> String {
        shown_bytes(self.local_path(path).into_os_string().into_vec())
    }

    /// Opens a file. A link is followed only if it is that of a file in a space.
    fn hold(&self, path: &LogicalPath) -> io::Result<Box<dyn HeldFile>> {
        for _ in 1..OPEN_TRIES {
            match self.posix.hold(path) {
                // A purge of the server has it for a moment.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(OPEN_PAUSE),
                other => return other,
            }
        }
        self.posix.hold(path)
    }

    /// Returns the path whose name is at a local path. `None` outside of the local root, and with name rules,
    /// which are not translated back.
    fn logical_path(&self, local: &Path) -> Option<LogicalPath> {
        if !self.effective.storage.name_rules.is_empty() {
            return None;
        }
        let root = self.effective.storage.local_root.value.as_deref().unwrap_or(Path::new("/"));
        let below = local.strip_prefix(root).ok()?;
        LogicalPath::parse(&[b"/", below.as_os_str().as_bytes()].concat()).ok()
    }
}

impl CommandRun<'_> {
    fn message(&mut self, line: impl AsRef<str>) {
        self.console.message(line.as_ref());
    }

    /// Reports a failure. The command goes on.
    fn fail(&mut self, text: impl AsRef<str>) {
        self.has_failed = true;
        self.console.message(&format!("{PROGRAM}: {}", text.as_ref()));
    }

    /// Reports a failure that ends the command.
    fn refuse<T>(&mut self, text: impl AsRef<str>) -> CommandStep<T> {
        self.fail(text);
        Err(CommandEnd)
    }
}

/// Returns the path of the usage log.
fn usage_log(log: &config::UsageLogConfig) -> PathBuf {
    let directory = &log.directory;
    log.instance.as_ref().map_or_else(|| directory.clone(), |name| directory.join(name)).join(".Usage")
}

/// Returns bytes as text. Whoever prints it has to escape it.
fn shown_bytes(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

/// Returns the text of an error in lower case, as XRootD writes it.
fn error_text(error: &io::Error) -> String {
    let text = base::errno_text(error);
    match text.chars().next() {
        Some(first) => {
            format!("{}{}", first.to_ascii_lowercase(), text.get(first.len_utf8()..).unwrap_or_default())
        }
        None => text,
    }
}

/// Returns a number with the right form of a noun.
fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
