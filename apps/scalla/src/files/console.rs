//! [`Console`]: what a command tells, and the exit status that comes of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::{Client, Error, Url};
use serde_json::Value;

use super::context::Usage;
use crate::facts;
use crate::hint::Hints;
use crate::printer::{Bar, Buffer, OutputError, Text, Writer, err, out};

/// Output that is handed over at once.
const PIECE_BYTES: usize = 64 * 1024;
/// What has been put waits no longer than that, if there is anything new.
const PATIENCE: Duration = Duration::from_millis(100);
/// Work that takes no longer is not shown, and how often it is looked how far it is.
const SHOW_TIME: Duration = Duration::from_millis(500);
/// Status when something failed, and when the arguments make no sense.
const FAILED: u8 = 1;
const WRONG: u8 = 2;
/// Status when it is unknown whether something was done: its reply was lost.
pub(crate) const UNCERTAIN: u8 = 3;

/// Takes what a command tells. Output goes through memory; when there is much of it, through a thread, so that a reader who
/// takes his time (a pager) does not keep connections from being driven.
pub(crate) struct Console {
    json: bool,
    /// Errors with the names of their codes.
    verbose: bool,
    colours: bool,
    pending: RefCell<Buffer>,
    passed: Cell<Instant>,
    writer: OnceCell<Writer>,
    failed: Cell<bool>,
    uncertain: Cell<bool>,
    hints: RefCell<Hints>,
    shows_wait: Cell<bool>,
    bar: OnceCell<Bar>,
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

    /// Whether names may be coloured.
    pub(super) const fn has_colours(&self) -> bool {
        self.colours
    }

    /// Adds a text to the output.
    pub(super) fn put(&self, text: &Text) {
        self.pending.borrow_mut().put(text);
    }

    /// Adds a line to the output.
    pub(super) fn line(&self, line: impl Display) {
        self.put(out().text().add(line).own("\n"));
    }

    /// Adds a line over what follows, with an empty line before it unless it is the first.
    pub(super) fn heading(&self, has_gap: bool, line: impl Display) {
        self.put(out().text().own(if has_gap { "\n" } else { "" }).add(line).own("\n"));
    }

    /// Adds text of several lines, which ends its own lines.
    pub(super) fn lines(&self, lines: impl Display) {
        self.put(out().text().add_lines(lines));
    }

    /// Adds contents of a file.
    pub(super) fn content(&self, bytes: &[u8]) {
        self.pending.borrow_mut().put_content(bytes);
    }

    /// Adds an item as a line of JSON.
    pub(super) fn json(&self, mut item: Value) {
        if let Some(facts) = item.as_object_mut() {
            facts.entry("kind").or_insert_with(|| "item".into());
        }
        self.put(&Text::of_json(&item));
    }

    /// Lets output go when there is enough of it, or it is time. Commands call it wherever they wait anyway.
    ///
    /// # Errors
    /// When nobody takes the output any more; then there is no sense in going on.
    pub(super) async fn pass(&self) -> anyhow::Result<()> {
        let size = self.pending.borrow().len();
        let due = size >= PIECE_BYTES || (size > 0 && self.passed.get().elapsed() >= PATIENCE);
        if due { self.flush().await } else { Ok(()) }
    }

    /// Lets output go now.
    ///
    /// # Errors
    /// As [`Console::pass`].
    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        self.passed.set(Instant::now());
        let pending = self.pending.borrow_mut().take();
        match pending {
            Some(piece) => {
                self.show_wait(None);
                Ok(self.writer.get_or_init(Writer::start).write(piece).await?)
            }
            None => Ok(()),
        }
    }

    /// Tells that something failed; the command goes on.
    pub(super) fn fail(&self, url: &Url, error: &Error) {
        self.failed.set(true);
        self.uncertain.set(self.uncertain.get() || error.is_uncertain());
        self.hints.borrow_mut().note(error);
        if self.json {
            let mut line = facts::of_request(error);
            line.insert("url".to_owned(), url.to_string().into());
            self.json(line.into());
        } else if self.verbose {
            self.beside(|| err().error(format_args!("{error:#}")));
        } else {
            self.beside(|| err().error(error));
        }
    }

    /// Tells a person what was probably meant by names that are not there.
    pub(super) async fn hint(&self, client: &Client) {
        let hints = self.hints.take();
        if !self.json {
            hints.tell(client).await;
        }
    }

    /// Reports a failure without a server's error. With JSON, `about` has the keys of the object.
    pub(super) fn fail_with(&self, about: &[(&str, Value)], text: &str) {
        self.failed.set(true);
        if self.json {
            let mut line = facts::failure(text, None);
            line.extend(about.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            self.json(line.into());
        } else {
            self.beside(|| err().error(text));
        }
    }

    /// Writes a line to the error output, beside the output.
    pub(super) fn complain(&self, line: impl Display) {
        self.beside(|| err().line(line));
    }

    /// Runs `print` while no progress is on the screen.
    fn beside(&self, print: impl FnOnce()) {
        match self.bar.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Shows how far long work is, where a person looks on.
    pub(super) fn progress(&self, text: impl FnOnce() -> String) {
        if !self.json && err().is_terminal() {
            self.bar.get_or_init(Bar::of_messages).set_message(&text());
        }
    }

    /// Shows what a server is waited for, where a person looks on; `None`: nothing any more.
    pub(super) fn show_wait(&self, wait: Option<String>) {
        let was_shown = self.shows_wait.replace(wait.is_some());
        match wait {
            Some(wait) => self.progress(|| wait),
            None if was_shown => self.clear(),
            None => {}
        }
    }

    /// Takes what is shown off the screen, because output may go to the same one.
    pub(super) fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.set_message("");
            bar.suspend(|| ());
        }
    }

    /// Waits for long work, and shows how far it is.
    pub(super) async fn wait<T>(&self, work: impl Future<Output = T>, text: impl Fn() -> String) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.clear();
                    return done;
                }
                () = tokio::time::sleep(SHOW_TIME) => self.progress(&text),
            }
        }
    }

    /// Writes what is left, tells why the command ended before its time if it did, and gives the exit status.
    pub(super) fn end(self, ran: anyhow::Result<()>) -> ExitCode {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
        let rest = self.pending.take().finish();
        let written = match self.writer.into_inner() {
            Some(writer) => writer.end(&rest),
            None => rest.write(),
        };
        let error = ran.err().or_else(|| written.err().map(Into::into));
        // Who closed the pipe has what he wanted.
        if let Some(error) = error.filter(|error| !is_closed_pipe(error)) {
            let is_usage = error.is::<Usage>();
            if self.json {
                let line = facts::failure(&format!("{error:#}"), is_usage.then_some(facts::USAGE));
                out().json(&line.into());
            } else {
                err().error(format_args!("{error:#}"));
            }
            return ExitCode::from(if is_usage { WRONG } else { FAILED });
        }
        ExitCode::from(match (self.uncertain.get(), self.failed.get()) {
            (true, _) => UNCERTAIN,
            (_, true) => FAILED,
            _ => 0,
        })
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|OutputError(error)| error.kind() == std::io::ErrorKind::BrokenPipe)
}
