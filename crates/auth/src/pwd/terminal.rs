//! [`ask_password`]: a password that is typed at the terminal of this process.

use super::hash::PASSWORD_BYTES_MAX;
use crate::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use zeroize::Zeroizing;

/// Restores the settings of a terminal.
struct EchoOff<'a> {
    terminal: &'a File,
    before: rustix::termios::Termios,
}

impl Drop for EchoOff<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Asks for a password at the terminal of this process, without an echo; `None` if there is no
/// terminal, or no line was typed. It blocks.
#[must_use]
pub fn ask_password(question: &str) -> Option<Secret> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    let handle = terminal.try_clone().ok()?;
    let before = tcgetattr(&handle).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&handle, OptionalActions::Flush, &silent).ok()?;
    let echo_off = EchoOff { terminal: &handle, before };
    terminal.write_all(question.as_bytes()).ok()?;
    let mut line = Zeroizing::new(Vec::with_capacity(PASSWORD_BYTES_MAX));
    let mut byte = [0];
    while terminal.read(&mut byte).ok()? == 1 && byte != *b"\n" {
        line.extend_from_slice(&byte);
        if line.len() > PASSWORD_BYTES_MAX {
            return None;
        }
    }
    drop(echo_off);
    terminal.write_all(b"\n").ok()?;
    Some(Secret::from(line.as_slice()))
}
