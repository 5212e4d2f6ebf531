//! `frm_admin`: examines and repairs files with copies in mass storage, with the command line and output of
//! XRootD's program.
//!
//! Its commands are in `server::FrmAdmin`. As with XRootD, all messages go to standard error, and the entries
//! of queues to standard output.

use crate::editor::{self, EditorInput, LineEditor};
use crate::evaluation::evaluation;
use crate::exit_status::FAILED;
use crate::frm_daemon::{configuration_file, instance, invalid, lettered_options};
use crate::printer::{err, out};
use config::{ConfigInput, LocalFiles, Overrides, Strictness};
use server::{FrmAdmin, FrmConsole};
use std::ffi::OsString;
use std::io::{self, BufRead as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

const PROGRAM: &str = "frm_admin";

const USAGE: &str = "
Usage: frm_admin  [-c <cfgfile>] [-d] [-h] [-n name] [-v] [help | cmd & opts]

";

/// Exit status of a command that failed.
const COMMAND_FAILED: u8 = 4;

/// Maximum length of a line of input in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A parsed command line.
#[derive(PartialEq, Eq, Default, Debug)]
struct AdminOptions {
    config: Option<PathBuf>,
    instance: Option<String>,
    wants_help: bool,
    is_verbose: bool,
    /// The command.
    words: Vec<Vec<u8>>,
}

impl AdminOptions {
    /// Parses options up to the first other word. They may be combined.
    fn parse(arguments: Vec<OsString>) -> Result<Self, String> {
        let mut options = Self::default();
        options.words = lettered_options(arguments, |letter, value| {
            match letter {
                b'd' | b'v' => options.is_verbose = true,
                b'h' => options.wants_help = true,
                b'c' => options.config = Some(value()?.into()),
                b'n' => options.instance = Some(instance(&value()?)?),
                _ => return Err(invalid(letter)),
            }
            Ok(())
        })?;
        Ok(options)
    }
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let options = match AdminOptions::parse(arguments) {
        Ok(options) => options,
        Err(text) => {
            err().line(format_args!("{PROGRAM}: {text}"));
            err().literal(USAGE);
            return ExitCode::from(FAILED);
        }
    };
    if options.wants_help {
        err().literal(USAGE);
        return ExitCode::SUCCESS;
    }
    let admin = match open(&options) {
        Ok(admin) => admin,
        Err(text) => {
            err().lines(format_args!("{PROGRAM}: {}\n", text.trim_end()));
            return ExitCode::from(COMMAND_FAILED);
        }
    };
    let succeeded = match options.words.is_empty() {
        false => is_end(&options.words) || admin.run(&options.words, &mut Terminal),
        true => interactive(&admin),
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::from(COMMAND_FAILED) }
}

/// Opens the tree of the configuration.
fn open(options: &AdminOptions) -> Result<FrmAdmin, String> {
    let file = options.config.clone().unwrap_or_else(configuration_file);
    let mut evaluation = evaluation(PROGRAM, options.instance.clone());
    evaluation.host = server::host_name();
    let input = ConfigInput {
        file: Some(file.to_string_lossy().into_owned()),
        evaluation,
        overrides: Overrides::default(),
        strictness: Strictness::Legacy,
    };
    let loaded = config::load(&input, &LocalFiles);
    let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    if options.is_verbose {
        err().line(format_args!("{PROGRAM}: configuration file {}", file.display()));
    }
    server::apply_environment(&loaded.effective.environment)
        .map_err(|error| format!("cannot set the environment of setenv: {error}"))?;
    FrmAdmin::open(loaded.effective)
}

fn is_end(words: &[Vec<u8>]) -> bool {
    matches!(words.first().map(Vec::as_slice), Some(b"exit" | b"quit"))
}

/// Runs commands from the input until its end. Reports whether the last one has succeeded.
fn interactive(admin: &FrmAdmin) -> bool {
    let mut succeeded = true;
    let mut lines: Box<dyn FnMut() -> Option<Vec<u8>>> = match editor::is_interactive() {
        true => match prompted() {
            Ok(lines) => lines,
            Err(error) => {
                err().line(format_args!("{PROGRAM}: cannot read commands: {error}"));
                return false;
            }
        },
        false => Box::new(input_line),
    };
    while let Some(line) = lines() {
        let words: Vec<Vec<u8>> =
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        if is_end(&words) {
            break;
        }
        if !words.is_empty() {
            succeeded = admin.run(&words, &mut Terminal);
        }
    }
    succeeded
}

/// Returns a reader of lines from a prompt.
fn prompted() -> io::Result<Box<dyn FnMut() -> Option<Vec<u8>>>> {
    let editor = LineEditor::start((), None, |line| !line.trim().is_empty())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(Box::new(move || {
        loop {
            match runtime.block_on(editor.read(format!("{PROGRAM}> "))) {
                EditorInput::Line(line) => return Some(line.into_bytes()),
                EditorInput::Interrupted => {}
                EditorInput::End => return None,
            }
        }
    }))
}

/// Reads a line of the input. `None` at the end, and for a line that is too long.
fn input_line() -> Option<Vec<u8>> {
    let mut line = Vec::new();
    io::stdin().lock().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).ok()?;
    if line.len() as u64 > LINE_BYTES_MAX {
        // The rest must not be taken for commands.
        err().line(format_args!("{PROGRAM}: line too long"));
        return None;
    }
    (!line.is_empty()).then_some(line)
}

/// The terminal, or what takes its place.
struct Terminal;

impl FrmConsole for Terminal {
    fn message(&mut self, line: &str) {
        err().line(line);
    }

    fn result(&mut self, line: &str) {
        out().line(line);
    }

    fn ask(&mut self, question: &str) -> Option<char> {
        err().prompt(question);
        let line = input_line();
        if line.as_ref().is_none_or(|line| !line.ends_with(b"\n")) {
            err().literal("\n");
        }
        let line = line?;
        Some(line.trim_ascii().first().map_or(' ', |letter| char::from(*letter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<AdminOptions, String> {
        AdminOptions::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_end_at_the_command() {
        let options = parse("-dc /etc/x -nfoo pin -k 2d /a").unwrap();
        assert_eq!(options.config, Some("/etc/x".into()));
        assert_eq!((options.instance.as_deref(), options.is_verbose), (Some("foo"), true));
        assert_eq!(options.words, [&b"pin"[..], b"-k", b"2d", b"/a"]);
        assert!(parse("-h").unwrap().wants_help);
        for (line, text) in
            [("-z", "'z' option"), ("-c", "'c' option"), ("-n a/b", "not the name of an instance")]
        {
            assert!(parse(line).unwrap_err().contains(text), "{line}");
        }
    }
}
