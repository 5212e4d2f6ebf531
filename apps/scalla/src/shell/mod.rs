//! `scalla shell`: runs commands on a server, typed or read from a script.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`ShellCommand`]: the command line and the loop over lines |
//! | `parser` | definition and parser of the commands |
//! | `runner` | execution of the commands |
//! | `resolve` | resolution of places, on this machine and at the server |
//! | `word_completer` | completion of words |

mod parser;
mod resolve;
mod runner;
mod word_completer;

use crate::completion::remote_names::RemoteNames;
use crate::editor::{self, EditorInput, LineEditor, LineHistory};
use crate::environment::{self, ClientRuntime};
use crate::exit_status::{INTERRUPTED, USAGE};
use crate::files::Context;
use crate::printer::err;
use crate::quoting::{self, ShellWord};
use client::Source;
#[cfg(test)]
pub(crate) use parser::definition;
use runner::{CommandRunner, LineOutcome};
use std::io::BufRead;
use std::process::ExitCode;
use tokio::sync::mpsc;

/// Run commands on a server, one after the other, with line editing, completion and history.
///
/// `help` lists the commands. Lines that do not come from a terminal run as a script. The exit
/// status is that of the last command.
#[derive(clap::Args, Debug)]
pub(crate) struct ShellCommand {
    #[allow(rustdoc::broken_intra_doc_links, reason = "help text")]
    /// Initial server and directory: root://HOST[:PORT][//DIR] or HOST[:PORT].
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: Option<String>,
    /// Exit after the first command that fails.
    #[arg(long = "errexit", short = 'e')]
    stops: bool,
}

impl ShellCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let ClientRuntime { runtime, log: _log } = environment::start_runtime(0)?;
        let mut settings = environment::settings();
        if !settings.is_set("StreamErrorWindow") {
            // A user who repeats a command expects another attempt.
            settings.set("StreamErrorWindow", "0", Source::Option)?;
        }
        let context = Context::new(environment::client_with(settings, "scalla"), None);
        let names = RemoteNames::new(runtime.handle().clone(), context);
        let lines = if editor::is_interactive() {
            let helper = word_completer::WordCompleter::new(names.clone());
            LineSource::Typed(LineEditor::start(helper, LineHistory::of_shell(), belongs_in_history)?)
        } else {
            LineSource::Script(read_script()?)
        };
        let status = runtime.block_on(async {
            let worker = CommandRunner::new(names, matches!(lines, LineSource::Script(_)))?;
            Ok(self.run_lines(lines, worker).await)
        });
        // A pending request without a reply must not delay the exit.
        runtime.shutdown_background();
        status
    }

    async fn run_lines(self, mut lines: LineSource, mut worker: CommandRunner) -> ExitCode {
        let is_script = matches!(lines, LineSource::Script(_));
        let mut status = ExitCode::SUCCESS;
        // A script without its server must stop.
        let mut stops = is_script;
        let mut done = match &self.url {
            Some(url) => {
                let done = worker.open_initial(url).await;
                if !is_script && matches!(done, LineOutcome::Status(status) if status == ExitCode::SUCCESS) {
                    worker.greet().await;
                }
                done
            }
            None => LineOutcome::Status(status),
        };
        loop {
            (status, stops) = match done {
                LineOutcome::Exit(chosen) => return chosen.unwrap_or(status),
                LineOutcome::Interrupted => (ExitCode::from(INTERRUPTED), stops || is_script),
                LineOutcome::Status(status) => (status, stops),
            };
            if stops && status != ExitCode::SUCCESS {
                return status;
            }
            stops = self.stops;
            done = match lines.next(worker.prompt()).await {
                InputLine::End => return status,
                InputLine::Empty => LineOutcome::Status(status),
                InputLine::Words(words) => worker.run_typed(words).await,
                InputLine::LocalCommand(command) => worker.run_here(&command).await,
                InputLine::Invalid(why) => {
                    err().error(why);
                    LineOutcome::Status(ExitCode::from(USAGE))
                }
            };
        }
    }
}

/// The source of lines.
enum LineSource {
    Typed(LineEditor),
    Script(mpsc::Receiver<String>),
}

/// The result of reading a line.
enum InputLine {
    Words(Vec<ShellWord>),
    /// A command of this machine, after `!`.
    LocalCommand(String),
    /// An empty line, a comment, or a cancelled line.
    Empty,
    /// An invalid line.
    Invalid(String),
    End,
}

impl LineSource {
    /// Returns the words of a line, and of the following lines while a quotation is open.
    async fn next(&mut self, prompt: String) -> InputLine {
        let mut text = String::new();
        let mut prompt = prompt;
        loop {
            match self.line(prompt).await {
                EditorInput::Line(line) => text.push_str(&line),
                EditorInput::Interrupted => return InputLine::Empty,
                EditorInput::End if text.is_empty() => return InputLine::End,
                EditorInput::End => {
                    return InputLine::Invalid("the last line ends within a quotation".to_owned());
                }
            }
            if let Some(command) = text.trim_start().strip_prefix('!') {
                return InputLine::LocalCommand(command.trim().to_owned());
            }
            let split = quoting::split(&text);
            if split.is_open() {
                text.push('\n');
                prompt = "> ".to_owned();
                continue;
            }
            return match (split.words.is_empty(), split.operator) {
                (true, _) => InputLine::Empty,
                (_, Some(sign)) => InputLine::Invalid(format!(
                    "`{sign}` has no meaning here; quote it where it is part of a name"
                )),
                (_, None) => InputLine::Words(split.words),
            };
        }
    }

    async fn line(&mut self, prompt: String) -> EditorInput {
        match self {
            Self::Typed(editor) => editor.read(prompt).await,
            Self::Script(lines) => lines.recv().await.map_or(EditorInput::End, EditorInput::Line),
        }
    }
}

/// Reports whether a line belongs in the history. Lines that begin with a blank do not.
fn belongs_in_history(line: &str) -> bool {
    line.starts_with(|letter: char| !letter.is_whitespace())
}

/// Reads standard input on a thread, so that connections are driven meanwhile.
fn read_script() -> std::io::Result<mpsc::Receiver<String>> {
    let (sender, lines) = mpsc::channel(1);
    let read = move || {
        let mut input = std::io::stdin().lock();
        let mut bytes = Vec::new();
        while input.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
            if sender.blocking_send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    };
    std::thread::Builder::new().name("script".to_owned()).spawn(read)?;
    Ok(lines)
}
