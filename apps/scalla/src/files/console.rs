//! [`Console`]: output of a command, its failures and its exit status.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::{Client, Error, Url};
use serde_json::Value;

use crate::exit_status;
use crate::json_failures;
use crate::name_suggestions::NameSuggestions;
use crate::printer::{OutputBuffer, OutputError, OutputText, OutputWriter, ProgressLine, err, out};
use crate::usage_error::UsageError;

/// Size from which buffered output is written.
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum delay of buffered output while more output is added.
const FLUSH_DELAY_MAX: Duration = Duration::from_millis(100);
/// Delay before progress is shown, and the interval of its updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Collects the output of a command. The output is buffered. A large output is written by a thread,
/// so that a slow reader (a pager) does not block the connections.
pub(crate) struct Console {
    json: bool,
    /// Set if errors include the names of their codes.
    verbose: bool,
    colours: bool,
    pending: RefCell<OutputBuffer>,
    passed: Cell<Instant>,
    writer: OnceCell<OutputWriter>,
    failed: Cell<bool>,
    uncertain: Cell<bool>,
    hints: RefCell<NameSuggestions>,
    shows_wait: Cell<bool>,
    bar: OnceCell<ProgressLine>,
}

impl Console {
    pub(crate) fn new(json: bool, verbose: bool) -> Self {
        Self {
            json,
            verbose,
            colours: !json && out().has_colours(),
            pending: RefCell::default(),
            passed: Cell::new(Instant::now()),
            writer: OnceCell::new(),
            failed: Cell::new(false),
            uncertain: Cell::new(false),
            hints: RefCell::default(),
            shows_wait: Cell::new(false),
            bar: OnceCell::new(),
        }
    }

    /// Reports whether names may be coloured.
    pub(super) const fn has_colours(&self) -> bool {
        self.colours
    }

    /// Adds a text to the output.
    pub(super) fn put(&self, text: &OutputText) {
        self.pending.borrow_mut().put(text);
    }

    /// Adds a line to the output.
    pub(super) fn line(&self, line: impl Display) {
        self.put(out().text().add(line).literal("\n"));
    }

    /// Adds a heading, with an empty line before it if `has_gap` is set.
    pub(super) fn heading(&self, has_gap: bool, line: impl Display) {
        self.put(out().text().literal(if has_gap { "\n" } else { "" }).add(line).literal("\n"));
    }

    /// Adds text of several lines, including their line ends.
    pub(super) fn lines(&self, lines: impl Display) {
        self.put(out().text().add_lines(lines));
    }

    /// Adds file content.
    pub(super) fn content(&self, bytes: &[u8]) {
        self.pending.borrow_mut().put_content(bytes);
    }

    /// Adds an item as a line of JSON.
    pub(super) fn json(&self, mut item: Value) {
        if let Some(facts) = item.as_object_mut() {
            facts.entry("kind").or_insert_with(|| "item".into());
        }
        self.put(&OutputText::of_json(&item));
    }

    /// Writes the buffered output if there is enough, or if its delay has passed. Commands call
    /// this function between requests.
    ///
    /// # Errors
    /// When the output is closed. The command should end then.
    pub(super) async fn flush_if_due(&self) -> anyhow::Result<()> {
        let size = self.pending.borrow().len();
        let due = size >= PIECE_BYTES || (size > 0 && self.passed.get().elapsed() >= FLUSH_DELAY_MAX);
        if due { self.flush().await } else { Ok(()) }
    }

    /// Writes the buffered output.
    ///
    /// # Errors
    /// As [`Console::flush_if_due`].
    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        self.passed.set(Instant::now());
        let pending = self.pending.borrow_mut().take();
        match pending {
            Some(piece) => {
                self.show_wait(None);
                Ok(self.writer.get_or_init(OutputWriter::start).write(piece).await?)
            }
            None => Ok(()),
        }
    }

    /// Reports a failure. The command continues.
    pub(super) fn fail(&self, url: &Url, error: &Error) {
        self.failed.set(true);
        self.uncertain.set(self.uncertain.get() || error.is_uncertain());
        self.hints.borrow_mut().record(error);
        if self.json {
            let mut line = json_failures::of_request(error);
            line.insert("url".to_owned(), url.to_string().into());
            self.json(line.into());
        } else if self.verbose {
            self.without_progress(|| err().error(format_args!("{error:#}")));
        } else {
            self.without_progress(|| err().error(error));
        }
    }

    /// Suggests similar names for names that do not exist, at a terminal.
    pub(super) async fn print_suggestions(&self, client: &Client) {
        let hints = self.hints.take();
        if !self.json {
            hints.show(client).await;
        }
    }

    /// Reports a failure without a server's error. With JSON, `about` has the keys of the object.
    pub(super) fn fail_with(&self, about: &[(&str, Value)], text: &str) {
        self.failed.set(true);
        if self.json {
            let mut line = json_failures::failure(text, None);
            line.extend(about.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            self.json(line.into());
        } else {
            self.without_progress(|| err().error(text));
        }
    }

    /// Writes a line to standard error, without disturbing the output.
    pub(super) fn warn(&self, line: impl Display) {
        self.without_progress(|| err().line(line));
    }

    /// Runs `print` while the progress is hidden.
    fn without_progress(&self, print: impl FnOnce()) {
        match self.bar.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Shows the progress of a long operation, at a terminal.
    pub(super) fn progress(&self, text: impl FnOnce() -> String) {
        if !self.json && err().is_terminal() {
            self.bar.get_or_init(ProgressLine::of_messages).set_message(&text());
        }
    }

    /// Shows the server for which the command waits, at a terminal. `None` ends the display.
    pub(super) fn show_wait(&self, wait: Option<String>) {
        let was_shown = self.shows_wait.replace(wait.is_some());
        match wait {
            Some(wait) => self.progress(|| wait),
            None if was_shown => self.clear(),
            None => {}
        }
    }

    /// Hides the progress, because the output may go to the same terminal.
    pub(super) fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.set_message("");
            bar.suspend(|| ());
        }
    }

    /// Waits for a long operation and shows its progress.
    pub(super) async fn wait<T>(&self, work: impl Future<Output = T>, text: impl Fn() -> String) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.clear();
                    return done;
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => self.progress(&text),
            }
        }
    }

    /// Writes the remaining output, reports an error that ended the command early, and returns the
    /// exit status.
    pub(super) fn finish(self, ran: anyhow::Result<()>) -> ExitCode {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
        let rest = self.pending.take().finish();
        let written = match self.writer.into_inner() {
            Some(writer) => writer.end(&rest),
            None => rest.write(),
        };
        let error = ran.err().or_else(|| written.err().map(Into::into));
        // A reader that closed the pipe needs no more output, so this is not an error.
        if let Some(error) = error.filter(|error| !is_closed_pipe(error)) {
            let is_usage = error.is::<UsageError>();
            if self.json {
                let line =
                    json_failures::failure(&format!("{error:#}"), is_usage.then_some(json_failures::USAGE));
                out().json(&line.into());
            } else {
                err().error(format_args!("{error:#}"));
            }
            return ExitCode::from(if is_usage { exit_status::USAGE } else { exit_status::FAILED });
        }
        ExitCode::from(match (self.uncertain.get(), self.failed.get()) {
            (true, _) => exit_status::UNCERTAIN,
            (_, true) => exit_status::FAILED,
            _ => 0,
        })
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|OutputError(error)| error.kind() == std::io::ErrorKind::BrokenPipe)
}
