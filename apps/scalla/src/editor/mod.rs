//! Line editing at a terminal, with history and completion.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`LineEditor`]: reads lines while connections are driven |
//! | `history` | [`LineHistory`]: the persistent history of lines |

mod history;

pub(crate) use history::LineHistory;

use crate::printer::out;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::{History as _, MemHistory};
use rustyline::{CompletionType, Config, Helper};
use std::io::{self, IsTerminal};
use std::sync::mpsc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Maximum number of lines in the history.
const REMEMBERED_MAX: usize = 1000;

/// Escape sequence that disables bracketed paste.
const PASTE_PLAIN: &str = "\x1b[?2004l\n";

/// The input at a prompt.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum EditorInput {
    Line(String),
    /// Ctrl-C: the line was cancelled.
    Interrupted,
    /// Ctrl-D, or the terminal was closed.
    End,
}

/// Reads lines on a thread of its own, so that the caller can drive connections while it waits.
pub(crate) struct LineEditor {
    requests: mpsc::Sender<PromptRequest>,
}

struct PromptRequest {
    prompt: String,
    reply: oneshot::Sender<EditorInput>,
}

/// Reports whether input and output are both a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && out().is_terminal()
}

impl LineEditor {
    /// Starts an editor. `helper` completes words. Lines accepted by `belongs_in_history` are
    /// added to `history`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        helper: impl Helper + Send + 'static,
        history: Option<LineHistory>,
        belongs_in_history: fn(&str) -> bool,
    ) -> io::Result<Self> {
        if let Ok(before) = tcgetattr(io::stdin()) {
            restore_terminal_on_signal(before)?;
        }
        let (requests, received) = mpsc::channel();
        let work = move || run_editor(helper, history, belongs_in_history, &received);
        std::thread::Builder::new().name("editor".to_owned()).spawn(work)?;
        Ok(Self { requests })
    }

    /// Shows a prompt and waits for a line.
    pub(crate) async fn read(&self, prompt: String) -> EditorInput {
        let (reply, line) = oneshot::channel();
        let sent = self.requests.send(PromptRequest { prompt, reply });
        if sent.is_err() { EditorInput::End } else { line.await.unwrap_or(EditorInput::End) }
    }
}

/// Restores the terminal settings when a signal ends the program while a line is edited.
fn restore_terminal_on_signal(before: Termios) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut hang_up) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    let wait = move || {
        let signal_kind = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => SignalKind::terminate(),
                _ = hang_up.recv() => SignalKind::hangup(),
            }
        });
        // If the terminal is gone, nothing has to be restored.
        tcsetattr(io::stdin(), OptionalActions::Now, &before).ok();
        out().literal(PASTE_PLAIN);
        std::process::exit(128 + signal_kind.as_raw_value());
    };
    std::thread::Builder::new().name("ending".to_owned()).spawn(wait)?;
    Ok(())
}

fn run_editor(
    helper: impl Helper,
    history: Option<LineHistory>,
    belongs_in_history: fn(&str) -> bool,
    requests: &mpsc::Receiver<PromptRequest>,
) {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut lines = MemHistory::with_config(&config);
    lines.set_max_len(REMEMBERED_MAX).ok();
    let Ok(mut editor) = rustyline::Editor::with_history(config, lines) else { return };
    editor.set_helper(Some(helper));
    for line in history.iter().flat_map(|history| history.lines(REMEMBERED_MAX)) {
        editor.add_history_entry(line).ok();
    }
    for PromptRequest { prompt, reply } in requests {
        let done = match editor.readline(&base::shown(&prompt).to_string()) {
            Ok(line) => {
                // A line that repeats the previous one is not added.
                if belongs_in_history(&line)
                    && editor.add_history_entry(line.as_str()).is_ok_and(|is_new| is_new)
                    && let Some(history) = &history
                {
                    history.add(&line);
                }
                EditorInput::Line(line)
            }
            Err(ReadlineError::Interrupted) => EditorInput::Interrupted,
            Err(_) => EditorInput::End,
        };
        if reply.send(done).is_err() {
            return;
        }
    }
}
