//! kXR_query and kXR_set: information about the server and its files, and settings of a session.
//!
//! They share a file because both select one of many functions by a code or a word.

use crate::cache_commands::{self, split_word};
use crate::call::CallKind;
use crate::handles::FileRequest;
use crate::sequencer::Access;
use crate::settings::Settings;
use crate::step::{DriverTask, MonitorCommand};
use crate::target::{Verb, target, targets};
use base::{Error, ErrorKind};
use std::borrow::Cow;
use vfs::{Caller, FileOperation, Operation};
use wire::xroot::codes::{ErrorCode, QueryType};
use wire::xroot::limits::CONFIG_ANSWER_BYTES_MAX;
use wire::xroot::request::{Query, Set};

/// A request for information, or for a setting of its session.
pub(crate) struct QueryRequest<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) caller: &'a Caller,
    pub(crate) on_file: FileRequest<'a>,
}

impl QueryRequest<'_> {
    pub(crate) fn query(&mut self, m: &Query<'_>) -> DriverTask {
        let by_handle = matches!(m.infotype, QueryType::VISA | QueryType::FINFO | QueryType::OPAQUG);
        // Without an argument every type queries a handle.
        if m.args.is_empty() || by_handle {
            return self.query_handle(m, by_handle);
        }
        let text = m.text();
        let operation = match m.infotype {
            QueryType::CONFIG => return self.configuration(text),
            QueryType::STATS => {
                let selection = String::from_utf8_lossy(text).into_owned();
                let call = self.on_file.call(CallKind::TextWithNul);
                return DriverTask::Statistics { call, selection };
            }
            QueryType::CKSUM => target(text, Verb::CHECKSUM).map(Operation::Checksum),
            QueryType::CKSCAN => target(text, Verb::CHECKSUM).map(Operation::CancelChecksum),
            QueryType::XATTR => target(text, Verb::STAT).map(Operation::QueryAttributes),
            QueryType::SPACE => target(text, Verb::STAT).map(Operation::QuerySpace),
            QueryType::PREP => prepare(m.args),
            QueryType::OPAQUE => Ok(Operation::QueryOpaque { code: m.infotype.0, argument: text.to_vec() }),
            // The argument of these begins with a path.
            QueryType::FSINFO | QueryType::OPAQUF => target(text, Verb::QUERY)
                .map(|_| Operation::QueryOpaque { code: m.infotype.0, argument: text.to_vec() }),
            _ => Err(Error::new(ErrorKind::ArgInvalid, "Invalid information query type code")),
        };
        let kind = match m.infotype {
            QueryType::XATTR | QueryType::SPACE | QueryType::PREP => CallKind::TextWithNul,
            _ => CallKind::Plain,
        };
        match operation {
            Ok(operation) => {
                let call = self.on_file.call(kind);
                self.on_file.work.start_on_names(call, operation, None)
            }
            Err(error) => self.on_file.reply.fail(&error),
        }
    }

    fn query_handle(&mut self, m: &Query<'_>, by_handle: bool) -> DriverTask {
        if self.on_file.work.open_file(m.fhandle).is_none() {
            return self.on_file.not_open("query");
        }
        if !by_handle {
            let text = "Required query argument not present";
            return self.on_file.reply.refuse(ErrorCode::ARG_MISSING, text);
        }
        // A query may cancel an operation on the handle, so it does not wait for it.
        let operation = FileOperation::Query { code: m.infotype.0, argument: m.text().to_vec() };
        self.on_file.on_file(m.fhandle, "query", (Access::Unordered, operation))
    }

    /// Replies with one line per key: its value, or the key itself if it is unknown.
    ///
    /// Keys are separated by blanks or line ends, because the command line client sends both.
    fn configuration(&mut self, keys: &[u8]) -> DriverTask {
        let mut words = keys.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).peekable();
        let first = words.next();
        if matches!(first, Some(b"xrootd" | b"cmsd")) && words.peek().is_none() {
            // The text of the configuration is sent only over TLS.
            return self.on_file.reply.succeed(b"\n\0");
        }
        let mut answer = Vec::new();
        for key in first.into_iter().chain(words) {
            let value = self.value_of(key);
            let value = value.as_deref().map_or(key, str::as_bytes);
            // A request may carry megabytes of keys, so the answer is limited.
            if answer.len() + value.len() >= CONFIG_ANSWER_BYTES_MAX {
                let text = "too many query config arguments.";
                return self.on_file.reply.refuse(ErrorCode::ARG_TOO_LONG, text);
            }
            answer.extend_from_slice(value);
            answer.push(b'\n');
        }
        if answer.is_empty() {
            let text = "query config argument not specified.";
            return self.on_file.reply.refuse(ErrorCode::ARG_MISSING, text);
        }
        self.on_file.reply.succeed(&answer)
    }

    /// Returns the value of a key; `None` if it is unknown.
    fn value_of(&self, key: &[u8]) -> Option<Cow<'_, str>> {
        if key == auth::IDENTITY_KEY.as_bytes() {
            let caller = self.caller;
            let line = auth::encode_identity(caller.entity(), caller.identity.host());
            return Some(Cow::Owned(line));
        }
        let settings = self.settings;
        let fixed = settings.configuration.iter().find(|(known, _)| known.as_bytes() == key);
        if let Some((_, value)) = fixed {
            return Some(Cow::Borrowed(value.as_str()));
        }
        let live = settings.live_values.iter().find(|(known, _)| known.as_bytes() == key);
        live.map(|(_, value)| Cow::Owned(value.get()))
    }

    pub(crate) fn set(&mut self, m: &Set<'_>) -> DriverTask {
        let raw = m.text.split(|&b| b == 0).next().unwrap_or_default();
        if let (b"cache", words) = split_word(raw)
            && self.settings.has_cache
        {
            return match cache_commands::of_words(words) {
                Ok(operation) => {
                    let call = self.on_file.call(CallKind::TextWithNul);
                    self.on_file.work.start_on_names(call, operation, None)
                }
                Err(error) => self.on_file.reply.fail(&error),
            };
        }
        let Some(command) = monitor_command(raw) else {
            return self.on_file.reply.refuse(ErrorCode::ARG_INVALID, "invalid set parameter");
        };
        if self.settings.has_monitoring {
            let call = self.on_file.call(CallKind::Plain);
            return DriverTask::Monitor { call, command };
        }
        match command {
            // Without a monitoring stream the id of the record is 0.
            MonitorCommand::Info(_) => self.on_file.reply.succeed(&[0; 4]),
            MonitorCommand::Application(_) | MonitorCommand::Switch { .. } => self.on_file.reply.succeed(&[]),
        }
    }
}

/// Parses a command about monitoring.
fn monitor_command(text: &[u8]) -> Option<MonitorCommand> {
    let (word, rest) = split_word(text);
    let application = rest.trim_ascii().to_vec();
    if word == b"appid" {
        return (!application.is_empty()).then_some(MonitorCommand::Application(application));
    }
    let (switch, rest) = split_word(rest);
    let text = rest.trim_ascii().to_vec();
    match (word, switch) {
        (b"monitor", b"on" | b"off") => {
            Some(MonitorCommand::Switch { is_on: switch == b"on", application: text })
        }
        (b"monitor", b"info") => Some(MonitorCommand::Info(text)),
        _ => None,
    }
}

/// Parses the request id and the files on the lines after it.
fn prepare(args: &[u8]) -> Result<Operation, Error> {
    let args = args.split(|&b| b == 0).next().unwrap_or_default();
    let mut parts = args.splitn(2, |&b| b == b'\n');
    let id = parts.next().unwrap_or_default().to_vec();
    if id.is_empty() {
        return Err(Error::new(ErrorKind::ArgMissing, "Prepare requestid not specified"));
    }
    Ok(Operation::QueryPrepare { id, targets: targets(parts.next().unwrap_or_default(), Verb::PREPARE)? })
}
