//! [`Console`]: what a command tells, and the exit status that comes of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use client::{Error, Url};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::context::Usage;
use super::text::name;
use crate::cli::complain;

/// Output that is handed over at once.
const PIECE_BYTES: usize = 64 * 1024;
/// What has been put waits no longer than that, if there is anything new.
const PATIENCE: Duration = Duration::from_millis(100);
/// Work that takes no longer is not shown, and how often it is looked how far it is.
const SHOW_TIME: Duration = Duration::from_millis(500);
/// Width of a terminal that does not tell its own.
const WIDTH: usize = 80;
/// Status when something failed, and when the arguments make no sense.
const FAILED: u8 = 1;
const WRONG: u8 = 2;

/// Takes what a command tells. Output goes through memory; when there is much of it, through a thread, so that a reader who
/// takes his time (a pager) does not keep connections from being driven.
pub(crate) struct Console {
    json: bool,
    terminal: bool,
    colours: bool,
    pending: RefCell<Vec<u8>>,
    passed: Cell<Instant>,
    writer: OnceCell<Writer>,
    failed: Cell<bool>,
    bar: OnceCell<ProgressBar>,
}

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
struct OutputError(std::io::Error);

impl Console {
    pub(crate) fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            json,
            terminal,
            colours: terminal && !json && !dumb && !set("NO_COLOR"),
            pending: RefCell::default(),
            passed: Cell::new(Instant::now()),
            writer: OnceCell::new(),
            failed: Cell::new(false),
            bar: OnceCell::new(),
        }
    }

    /// Whether a person looks at the output.
    pub(super) const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether names may be coloured.
    pub(super) const fn has_colours(&self) -> bool {
        self.colours
    }

    /// Columns of the terminal.
    pub(super) fn width(&self) -> usize {
        let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let asked =
            || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
        told.or_else(asked).filter(|width| *width > 0).unwrap_or(WIDTH)
    }

    /// Tells something.
    pub(super) fn put(&self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    /// Tells something that need not be text.
    pub(super) fn put_bytes(&self, bytes: &[u8]) {
        self.pending.borrow_mut().extend_from_slice(bytes);
    }

    /// Tells an item as a line of JSON.
    pub(super) fn put_json(&self, item: &Value) {
        self.put(&format!("{item}\n"));
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
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        if pending.is_empty() {
            return Ok(());
        }
        Ok(self.writer.get_or_init(Writer::start).write(pending).await?)
    }

    /// Tells that something failed; the command goes on.
    pub(super) fn fail(&self, url: &Url, error: &Error) {
        self.fail_with(&[("url", url.to_string().into())], &error.to_string());
    }

    /// The same for what is no server's fault. With JSON, `facts` say what it is about.
    pub(super) fn fail_with(&self, facts: &[(&str, Value)], text: &str) {
        self.failed.set(true);
        if self.json {
            let mut item: Map<String, Value> =
                facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            item.insert("error".to_owned(), text.into());
            self.put_json(&item.into());
        } else {
            self.complain(&format!("scalla: error: {}\n", name(text, true)));
        }
    }

    /// Tells people something beside the output.
    pub(super) fn complain(&self, text: &str) {
        match self.bar.get() {
            Some(bar) => bar.suspend(|| complain(text)),
            None => complain(text),
        }
    }

    /// Shows how far long work is, where a person looks on.
    pub(super) fn progress(&self, text: impl FnOnce() -> String) {
        if self.json || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            bar.set_style(
                indicatif::ProgressStyle::with_template("{msg}")
                    .unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner()),
            );
            bar
        });
        bar.set_message(text());
    }

    /// Waits for long work, and shows how far it is.
    pub(super) async fn wait<T>(&self, work: impl Future<Output = T>, text: impl Fn() -> String) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    if let Some(bar) = self.bar.get() {
                        // What is told now may go to the same screen.
                        bar.set_message("");
                    }
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
        let pending = self.pending.take();
        let written = match self.writer.into_inner() {
            Some(writer) => writer.end(pending),
            None => write(&pending).map_err(OutputError),
        };
        let error = ran.err().or_else(|| written.err().map(Into::into));
        // Who closed the pipe has what he wanted.
        if let Some(error) = error.filter(|error| !is_closed_pipe(error)) {
            complain(&format!("scalla: error: {error:#}\n"));
            return ExitCode::from(if error.is::<Usage>() { WRONG } else { FAILED });
        }
        ExitCode::from(if self.failed.get() { FAILED } else { 0 })
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|OutputError(error)| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn write(bytes: &[u8]) -> std::io::Result<()> {
    // Past the standard library's buffer, which would cut it into lines.
    let mut out = std::fs::File::from(rustix::io::dup(rustix::stdio::stdout())?);
    out.write_all(bytes)
}

/// A thread that writes.
struct Writer {
    pieces: mpsc::Sender<Vec<u8>>,
    thread: std::thread::JoinHandle<()>,
    failed: Arc<Mutex<Option<std::io::Error>>>,
}

impl Writer {
    fn start() -> Self {
        let (pieces, mut taken) = mpsc::channel::<Vec<u8>>(1);
        let failed = Arc::new(Mutex::new(None));
        let told = failed.clone();
        let thread = std::thread::spawn(move || {
            while let Some(piece) = taken.blocking_recv() {
                if let Err(error) = write(&piece) {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        });
        Self { pieces, thread, failed }
    }

    fn failure(&self) -> Result<(), OutputError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), |error| Err(OutputError(error)))
    }

    async fn write(&self, piece: Vec<u8>) -> Result<(), OutputError> {
        if self.pieces.send(piece).await.is_err() {
            self.failure()?;
            return Err(OutputError(std::io::ErrorKind::BrokenPipe.into()));
        }
        Ok(())
    }

    fn end(self, rest: Vec<u8>) -> Result<(), OutputError> {
        let Self { pieces, thread, failed } = self;
        drop(pieces);
        thread.join().ok();
        match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(OutputError(error)),
            None => write(&rest).map_err(OutputError),
        }
    }
}
