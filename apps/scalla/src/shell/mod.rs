//! `scalla shell`: runs commands on a server, typed or read from a script.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Shell`]: the command line and the loop over lines |
//! | `line` | definition and parser of the commands |
//! | `words` | splitting of a line into words |
//! | `work` | execution of the commands |
//! | `places` | resolution of places, on this machine and at the server |
//! | `complete` | completion of words |

mod complete;
mod line;
mod places;
pub(crate) mod words;
mod work;

use crate::completion::names::Names;
use crate::editor::{self, Editor, History, Typed};
use crate::environment::{self, Ground};
use crate::exit_status::{INTERRUPTED, USAGE};
use crate::files::Context;
use crate::printer::err;
use client::{Client, Source};
#[cfg(test)]
pub(crate) use line::definition;
use std::io::BufRead;
use std::process::ExitCode;
use tokio::sync::mpsc;
use words::Word;
use work::{Done, Worker};

/// Run commands on a server, one after the other, with line editing, completion and history.
///
/// `help` lists the commands. Lines that do not come from a terminal run as a script. The exit
/// status is that of the last command.
#[derive(clap::Args, Debug)]
pub(crate) struct Shell {
    /// Initial server and directory: root://HOST[:PORT][//DIR] or HOST[:PORT].
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: Option<String>,
    /// Exit after the first command that fails.
    #[arg(long = "errexit", short = 'e')]
    stops: bool,
}

impl Shell {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Ground { runtime, log: _log } = environment::begin(0)?;
        let mut settings = environment::settings();
        if !settings.is_set("StreamErrorWindow") {
            // A user who repeats a command expects another attempt.
            settings.set("StreamErrorWindow", "0", Source::Option)?;
        }
        let context = Context::new(Client::with(settings, "scalla"), None);
        let names = Names::new(runtime.handle().clone(), context);
        let lines = if editor::is_dialogue() {
            let helper = complete::Words::new(names.clone());
            Lines::Typed(Editor::start(helper, History::of_shell(), is_worth)?)
        } else {
            Lines::Script(script()?)
        };
        let status = runtime.block_on(async {
            let worker = Worker::new(names, matches!(lines, Lines::Script(_)))?;
            Ok(self.dialogue(lines, worker).await)
        });
        // A pending request without a reply must not delay the exit.
        runtime.shutdown_background();
        status
    }

    async fn dialogue(self, mut lines: Lines, mut worker: Worker) -> ExitCode {
        let is_script = matches!(lines, Lines::Script(_));
        let mut status = ExitCode::SUCCESS;
        // A script without its server must stop.
        let mut stops = is_script;
        let mut done = match &self.url {
            Some(url) => {
                let done = worker.begin(url).await;
                if !is_script && matches!(done, Done::Status(status) if status == ExitCode::SUCCESS) {
                    worker.greet().await;
                }
                done
            }
            None => Done::Status(status),
        };
        loop {
            (status, stops) = match done {
                Done::Exit(chosen) => return chosen.unwrap_or(status),
                Done::Interrupted => (ExitCode::from(INTERRUPTED), stops || is_script),
                Done::Status(status) => (status, stops),
            };
            if stops && status != ExitCode::SUCCESS {
                return status;
            }
            stops = self.stops;
            done = match lines.next(worker.prompt()).await {
                Read::End => return status,
                Read::Nothing => Done::Status(status),
                Read::Words(words) => worker.take(words).await,
                Read::Here(command) => worker.run_here(&command).await,
                Read::Wrong(why) => {
                    err().error(why);
                    Done::Status(ExitCode::from(USAGE))
                }
            };
        }
    }
}

/// The source of lines.
enum Lines {
    Typed(Editor),
    Script(mpsc::Receiver<String>),
}

/// The result of reading a line.
enum Read {
    Words(Vec<Word>),
    /// A command of this machine, after `!`.
    Here(String),
    /// An empty line, a comment, or a cancelled line.
    Nothing,
    /// An invalid line.
    Wrong(String),
    End,
}

impl Lines {
    /// Returns the words of a line, and of the following lines while a quotation is open.
    async fn next(&mut self, prompt: String) -> Read {
        let mut text = String::new();
        let mut prompt = prompt;
        loop {
            match self.line(prompt).await {
                Typed::Line(line) => text.push_str(&line),
                Typed::Interrupted => return Read::Nothing,
                Typed::End if text.is_empty() => return Read::End,
                Typed::End => return Read::Wrong("the last line ends within a quotation".to_owned()),
            }
            if let Some(command) = text.trim_start().strip_prefix('!') {
                return Read::Here(command.trim().to_owned());
            }
            let split = words::split(&text);
            if split.is_open() {
                text.push('\n');
                prompt = "> ".to_owned();
                continue;
            }
            return match (split.words.is_empty(), split.operator) {
                (true, _) => Read::Nothing,
                (_, Some(sign)) => {
                    Read::Wrong(format!("`{sign}` has no meaning here; quote it where it is part of a name"))
                }
                (_, None) => Read::Words(split.words),
            };
        }
    }

    async fn line(&mut self, prompt: String) -> Typed {
        match self {
            Self::Typed(editor) => editor.read(prompt).await,
            Self::Script(lines) => lines.recv().await.map_or(Typed::End, Typed::Line),
        }
    }
}

/// Reports whether a line belongs in the history. Lines that begin with a blank do not.
fn is_worth(line: &str) -> bool {
    line.starts_with(|letter: char| !letter.is_whitespace())
}

/// Reads standard input on a thread, so that connections are driven meanwhile.
fn script() -> std::io::Result<mpsc::Receiver<String>> {
    let (tell, lines) = mpsc::channel(1);
    let read = move || {
        let mut input = std::io::stdin().lock();
        let mut bytes = Vec::new();
        while input.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
            if tell.blocking_send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    };
    std::thread::Builder::new().name("script".to_owned()).spawn(read)?;
    Ok(lines)
}
