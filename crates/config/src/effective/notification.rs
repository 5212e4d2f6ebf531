//! `ofs.notify` and `ofs.notifymsg`: events about files for a program of the site.

use super::third_party::CopyProgram;
use crate::setting::Setting;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The bytes for which each unit of the two numbers of `ofs.notify msgs` stands.
pub const NOTIFY_UNIT_BYTES: (u64, u64) = (1360, 4352);

/// An event about a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NotifyEvent {
    /// Permission bits were set.
    Chmod,
    /// A file that was open for reading was closed.
    CloseReader,
    /// A file that was open for writing was closed.
    CloseWriter,
    /// A file was opened so that it is created or emptied.
    Create,
    /// A directory was created.
    Mkdir,
    /// A name was changed.
    Mv,
    /// A file was opened for reading.
    OpenReader,
    /// A file was opened for writing.
    OpenWriter,
    /// A file was removed.
    Rm,
    /// A directory was removed.
    Rmdir,
    /// The size of a file was set.
    Trunc,
    /// An open file was written for the first time.
    FirstWrite,
}

impl NotifyEvent {
    /// All events.
    pub const ALL: [Self; 12] = [
        Self::Chmod,
        Self::CloseReader,
        Self::CloseWriter,
        Self::Create,
        Self::Mkdir,
        Self::Mv,
        Self::OpenReader,
        Self::OpenWriter,
        Self::Rm,
        Self::Rmdir,
        Self::Trunc,
        Self::FirstWrite,
    ];

    /// Returns the word of the directive.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chmod => "chmod",
            Self::CloseReader => "closer",
            Self::CloseWriter => "closew",
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Mv => "mv",
            Self::OpenReader => "openr",
            Self::OpenWriter => "openw",
            Self::Rm => "rm",
            Self::Rmdir => "rmdir",
            Self::Trunc => "trunc",
            Self::FirstWrite => "fwrite",
        }
    }

    /// Returns the events of a word: one, or those of `all`, `open` and `close`.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Vec<Self>> {
        match word {
            "all" => Some(Self::ALL.to_vec()),
            "open" => Some(vec![Self::OpenReader, Self::OpenWriter]),
            "close" => Some(vec![Self::CloseReader, Self::CloseWriter]),
            _ => Self::ALL.into_iter().find(|event| event.name() == word).map(|event| vec![event]),
        }
    }

    /// Returns the text of an event without `ofs.notifymsg`.
    #[must_use]
    pub fn built_in_text(self) -> String {
        let values = match self {
            Self::Chmod | Self::Create | Self::Mkdir => "$FMODE $LFN",
            Self::Mv => "$LFN1 $LFN2",
            Self::Trunc => "$FSIZE",
            _ => "$LFN",
        };
        format!("$TID {} {values}", self.name())
    }
}

/// A variable of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotifyVariable {
    /// `$TID`: the client.
    Client,
    /// `$LFN` and `$LFN1`: the path.
    Path,
    /// `$LFN2`: the new path of `mv`.
    NewPath,
    /// `$CGI` and `$CGI1`: the opaque text of the path.
    Cgi,
    /// `$CGI2`: the opaque text of the new path.
    NewCgi,
    /// `$FMODE`: permission bits, in octal digits.
    Mode,
    /// `$FSIZE`: the size in bytes.
    Size,
}

impl NotifyVariable {
    const NAMES: [(&'static str, Self); 9] = [
        ("TID", Self::Client),
        ("LFN", Self::Path),
        ("LFN1", Self::Path),
        ("LFN2", Self::NewPath),
        ("CGI", Self::Cgi),
        ("CGI1", Self::Cgi),
        ("CGI2", Self::NewCgi),
        ("FMODE", Self::Mode),
        ("FSIZE", Self::Size),
    ];
}

/// A part of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotifyPart {
    /// Characters that are written as they are.
    Text(String),
    /// A value.
    Variable(NotifyVariable),
}

/// The text of an event, `ofs.notifymsg`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotifyMessage {
    /// As it is written in the configuration.
    pub text: String,
    /// Its parts.
    pub parts: Vec<NotifyPart>,
}

impl NotifyMessage {
    /// Reads a text. `\$` stands for the character.
    ///
    /// # Errors
    /// The text behind a `$` that does not begin a variable.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(c) = rest.chars().next() {
            let tail = rest.get(c.len_utf8()..).unwrap_or_default();
            match c {
                '\\' if tail.starts_with('$') => {
                    plain.push('$');
                    rest = tail.get(1..).unwrap_or_default();
                }
                '$' => {
                    let end = tail.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tail.len());
                    let (name, behind) = tail.split_at(end);
                    let known = NotifyVariable::NAMES.into_iter().find(|(known, _)| *known == name);
                    let (_, variable) = known.ok_or_else(|| name.to_owned())?;
                    if !plain.is_empty() {
                        parts.push(NotifyPart::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(NotifyPart::Variable(variable));
                    rest = behind;
                }
                c => {
                    plain.push(c);
                    rest = tail;
                }
            }
        }
        if !plain.is_empty() {
            parts.push(NotifyPart::Text(plain));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Reports whether the text has this variable.
    #[must_use]
    pub fn has(&self, variable: NotifyVariable) -> bool {
        self.parts.contains(&NotifyPart::Variable(variable))
    }
}

/// The receiver of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotifyTarget {
    /// A program, which reads lines.
    Program(CopyProgram),
    /// A named pipe.
    Pipe(PathBuf),
}

/// `ofs.notify`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The events that are reported.
    pub events: BTreeSet<NotifyEvent>,
    /// The numbers of `msgs`, which limit the memory of lines that wait.
    pub waiting: (u32, u32),
    /// The receiver.
    pub target: NotifyTarget,
}

impl Notification {
    /// Returns the maximum number of bytes of lines that wait for the receiver.
    #[must_use]
    pub fn waiting_bytes_max(&self) -> u64 {
        let (small, large) = NOTIFY_UNIT_BYTES;
        u64::from(self.waiting.0) * small + u64::from(self.waiting.1) * large
    }
}

/// `ofs.notify` and `ofs.notifymsg`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationConfig {
    /// The events and their receiver; `None` without the directive.
    pub notification: Setting<Option<Notification>>,
    /// The texts of the configuration.
    pub messages: BTreeMap<NotifyEvent, Setting<NotifyMessage>>,
}

impl Default for NotificationConfig {
    fn default() -> Self {
        Self { notification: Setting::default_of(None), messages: BTreeMap::new() }
    }
}
