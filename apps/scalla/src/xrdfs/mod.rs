//! The program `xrdfs`: runs a single command on a file system, or a dialogue.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the command line and the table of commands |
//! | `session` | [`XrdfsSession`]: connection, working directory, resolution of paths |
//! | `interactive` | lines from a terminal or a pipe |
//! | `listing` | `ls` |
//! | `stat_locate` | `stat`, `statvfs`, `spaceinfo`, `locate` |
//! | `namespace` | commands that change the name space, and `prepare` |
//! | `cat_tail` | `cat`, `tail` |
//! | `query_xattr` | `query`, `xattr`, `cache` |
//!
//! Output and exit statuses are those of this program in XRootD 5.5.3, compared line by line.
//! Additions of later versions are supported too. The NUL at the end of servers' error texts is not
//! printed.

mod cat_tail;
mod interactive;
mod listing;
mod namespace;
mod query_xattr;
mod session;
mod stat_locate;

use crate::printer::{err, out};
use crate::xrootd_compat::{self, INVALID_ARGUMENTS, XrdClStatus, code};
use session::{ResolvedPath, XrdfsSession, XrdfsSessionError};
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

const USAGE: &str = "\
Usage:
   xrdfs [--no-cwd] host[:port]              - interactive mode
   xrdfs            host[:port] command args - batch mode

Available options:

   --no-cwd no working directory: paths are sent as they are typed

Available commands:

";

/// A command.
struct XrdfsCommand {
    name: &'static str,
    /// The help text and the function.
    help: &'static str,
    run: fn(&mut XrdfsSession, &[&str]) -> Result<(), XrdClStatus>,
}

/// Returns the commands with a one-line description, for completion.
pub(crate) fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().map(|command| (command.name, command.help.lines().nth(1).unwrap_or_default().trim()))
}

/// The codes of `query`.
pub(crate) const QUERIES: [&str; 9] =
    ["config", "checksum", "checksumcancel", "opaque", "opaquefile", "space", "stats", "xattr", "prepare"];

/// All commands, in the order of the help.
const COMMANDS: [XrdfsCommand; 20] = [
    XrdfsCommand { name: "cd", help: "cd <path>\n     Go to another working directory.", run: cd },
    XrdfsCommand {
        name: "chmod",
        help: "chmod <path> <user><group><other>\n     Set permissions, written as in rwxr-x--x.",
        run: namespace::chmod,
    },
    XrdfsCommand {
        name: "ls",
        help: "ls [-l] [-u] [-R] [-D] [-Z] [-C] [dirname]
     List a directory.
     -l with status
     -u paths as URLs
     -R subdirectories too
     -D entries of several servers as often as they are there
     -Z the members of a ZIP archive
     -C with status and checksums",
        run: listing::ls,
    },
    XrdfsCommand {
        name: "locate",
        help: "locate [-n] [-r] [-d] [-m|-h] [-i] [-p] <path>
     Tell where a path is; * stands for all servers.
     -r without what managers remember
     -n at once, even if not all is known
     -d down to the servers
     -m, -h host names instead of addresses
     -i whatever the network
     -p ignore the servers that were tried",
        run: stat_locate::locate,
    },
    XrdfsCommand {
        name: "mkdir",
        help: "mkdir [-p] [-m<user><group><other>] <dirname>
     Make a directory.
     -p and those above it
     -m with these permissions (rwxr-x---)",
        run: namespace::mkdir,
    },
    XrdfsCommand {
        name: "mv",
        help: "mv <path1> <path2>\n     Rename on the same server.",
        run: namespace::mv,
    },
    XrdfsCommand {
        name: "stat",
        help: "stat [-q query] <path>
     Tell the status of a file or directory.
     -q fail unless these flags are set: all of those that & joins,
        one of those that | joins. Flags:
        XBitSet, IsDir, Other, Offline, POSCPending,
        IsReadable, IsWritable, BackUpExists",
        run: stat_locate::stat,
    },
    XrdfsCommand {
        name: "statvfs",
        help: "statvfs <path>\n     Tell the status of the file systems behind a path.",
        run: stat_locate::statvfs,
    },
    XrdfsCommand {
        name: "query",
        help: "query <code> <parms>
     Ask the server:
     config         <what>   values of its configuration: bind_max,
                             chksum, cms, pio_max, readv_ior_max,
                             readv_iov_max, role, sitename, tpc,
                             version, wan_port, wan_window, window, ...
     checksumcancel <path>   stop a checksum
     checksum       <path>   checksum of a file
     opaque         <arg>    as its plug-in has it
     opaquefile     <arg>    as its plug-in has it
     space          <space>  space by name or path
     stats          <what>   statistics, by letter: a all, b buffers,
                             d polling, i identity, l connections,
                             p protocol, s scheduling, u usage,
                             z synchronized
     xattr          <path>   attributes of a file
     prepare        <reqid> [filenames]  what became of a prepare",
        run: query_xattr::query,
    },
    XrdfsCommand { name: "rm", help: "rm <filename>\n     Remove files.", run: namespace::rm },
    XrdfsCommand {
        name: "rmdir",
        help: "rmdir <dirname>\n     Remove an empty directory.",
        run: namespace::rmdir,
    },
    XrdfsCommand {
        name: "truncate",
        help: "truncate <filename> <length>\n     Set the size of a file.",
        run: namespace::truncate,
    },
    XrdfsCommand {
        name: "prepare",
        help: "prepare [-c] [-f] [-s] [-w] [-e] [-p priority] [-a requestid] filenames
     Prepare files for use.
     -c in the same place if possible
     -f refresh the time of access
     -s bring them to disk; prints the id of the request
     -w they will be written
     -p priority, 0 (lowest) to 3
     -a give up the request of this id
     -e they are no longer needed on disk",
        run: namespace::prepare,
    },
    XrdfsCommand {
        name: "cat",
        help: "cat [-o local file] files\n     Print files.\n     -o into this file",
        run: cat_tail::cat,
    },
    XrdfsCommand {
        name: "tail",
        help: "tail [-c bytes] [-f] file
     Print the end of a file.
     -c so many bytes of it
     -f and what is appended from now on",
        run: cat_tail::tail,
    },
    XrdfsCommand {
        name: "spaceinfo",
        help: "spaceinfo path\n     Tell the space behind a path, of all servers together.",
        run: stat_locate::spaceinfo,
    },
    XrdfsCommand {
        name: "xattr",
        help: "xattr <path> <code> <params>
     Extended attributes:
     set   <name>=<value>
     get   <name>
     del   <name>
     list",
        run: query_xattr::xattr,
    },
    XrdfsCommand {
        name: "cache",
        help: "cache {evict | fevict} <path>
     Tell a cache to forget a file; fevict: even while it is used.",
        run: query_xattr::cache,
    },
    XrdfsCommand { name: "help", help: "help\n     Show this.", run: help },
    XrdfsCommand { name: "exit", help: "exit\n     End the dialogue.", run: unknown },
];

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let words = xrootd_compat::words(arguments);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let no_cwd = words.first() == Some(&"--no-cwd");
    if no_cwd {
        words.remove(0);
    }
    match words.split_first() {
        None => {
            out().lines(help_text());
            ExitCode::FAILURE
        }
        Some((&("-h" | "--help"), _)) => {
            out().lines(help_text());
            ExitCode::SUCCESS
        }
        Some((server, command)) => match XrdfsSession::new(server, !no_cwd && command.is_empty()) {
            Err(XrdfsSessionError::Usage) => {
                out().lines(help_text());
                ExitCode::FAILURE
            }
            Err(XrdfsSessionError::Status(status)) => end(&Err(status)),
            Ok(mut shell) if command.is_empty() => interactive::run(&mut shell, run_command),
            Ok(mut shell) => end(&run_command(&mut shell, command)),
        },
    }
}

/// Reports the failure and returns the exit status.
fn end(result: &Result<(), XrdClStatus>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            err().lines(format_args!("{status}\n"));
            status.exit()
        }
    }
}

fn help_text() -> String {
    let mut text = USAGE.to_owned();
    for command in &COMMANDS {
        // Writing to a string does not fail.
        let _ = write!(text, "   {}\n\n", command.help);
    }
    text
}

/// Runs a command, whose name is the first word.
fn run_command(shell: &mut XrdfsSession, words: &[&str]) -> Result<(), XrdClStatus> {
    let Some((name, arguments)) = words.split_first() else {
        return Err(XrdClStatus::error(code::UNKNOWN));
    };
    let command = COMMANDS.iter().find(|command| command.name == *name);
    (command.ok_or(XrdClStatus::error(code::UNKNOWN_COMMAND))?.run)(shell, arguments)
}

fn cd(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[path] = arguments else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, shown } = shell.target(path)?;
    if !shell.wait(fs.stat(&path))?.is_dir() {
        return Err(INVALID_ARGUMENTS);
    }
    shell.cwd = Some(shown);
    Ok(())
}

fn help(_: &mut XrdfsSession, _: &[&str]) -> Result<(), XrdClStatus> {
    out().lines(help_text());
    Ok(())
}

/// Rejects a word that is a command only in a dialogue.
fn unknown(_: &mut XrdfsSession, _: &[&str]) -> Result<(), XrdClStatus> {
    Err(XrdClStatus::error(code::UNKNOWN_COMMAND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_the_help_under_its_name() {
        for command in &COMMANDS {
            assert!(
                command.help.split(' ').next().is_some_and(|word| word.trim_end().starts_with(command.name))
            );
            assert!(help_text().contains(&format!("\n   {}", command.help)));
        }
    }
}
