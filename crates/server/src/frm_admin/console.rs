//! Where the messages of a command go, and where its answers come from.

use super::{CommandEnd, CommandRun, CommandStep, PROGRAM};

/// The input and output of commands.
pub trait FrmConsole {
    /// Writes a line for the administrator. It may contain text of others.
    fn message(&mut self, line: &str);
    /// Writes a line of a result for programs. It may contain text of others.
    fn result(&mut self, line: &str);
    /// Asks a question, and returns the first character of the answer, or a blank for an empty one. `None`
    /// at the end of the input.
    fn ask(&mut self, question: &str) -> Option<char>;
}

/// The answers that a question offers; the first one is that of an empty line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Preferred {
    No,
    Yes,
}

impl CommandRun<'_> {
    /// Asks whether to do something. Without any answer, nothing is done. The error is an abort of the command
    /// `name`.
    pub(super) fn confirm(&mut self, question: &str, preferred: Preferred, name: &str) -> CommandStep<bool> {
        let offered = match preferred {
            Preferred::No => "(n | y | a): ",
            Preferred::Yes => "(y | n | a): ",
        };
        match self.console.ask(&format!("{PROGRAM}: {question} {offered}")) {
            Some('y' | 'Y') => Ok(true),
            Some(' ') => Ok(preferred == Preferred::Yes),
            Some('a' | 'A') => {
                self.message(format!("{name} aborted!"));
                Err(CommandEnd)
            }
            _ => Ok(false),
        }
    }
}
