//! kXR_query and kXR_set: information about the server and its files, and settings of a session.
//!
//! They share a file because both select one of many functions by a code or a word.

use crate::call::CallKind;
use crate::ids::PathId;
use crate::replies;
use crate::sequencer::Access;
use crate::state::{ReplyOutputs, Session};
use crate::step::DriverTask;
use crate::target::{Verb, target, targets};
use base::{Error, ErrorKind};
use std::borrow::Cow;
use vfs::{FileOperation, Operation};
use wire::xroot::codes::{ErrorCode, QueryType};
use wire::xroot::header::StreamId;
use wire::xroot::limits::CONFIG_ANSWER_BYTES_MAX;
use wire::xroot::request::{Query, Set};

impl Session {
    pub(crate) fn query(&mut self, id: StreamId, m: &Query<'_>, out: &mut dyn ReplyOutputs) -> DriverTask {
        let by_handle = matches!(m.infotype, QueryType::VISA | QueryType::FINFO | QueryType::OPAQUG);
        // Without an argument every type queries a handle.
        if m.args.is_empty() || by_handle {
            return self.query_handle(id, m, by_handle, out);
        }
        let text = m.text();
        let operation = match m.infotype {
            QueryType::CONFIG => return self.configuration(id, text, out),
            QueryType::STATS => {
                let selection = String::from_utf8_lossy(text).into_owned();
                let call = self.call(id, PathId::CONTROL, CallKind::TextWithNul);
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
                let call = self.call(id, PathId::CONTROL, kind);
                self.start_on_names(call, operation, None)
            }
            Err(error) => self.fail(id, &error, out),
        }
    }

    fn query_handle(
        &mut self,
        id: StreamId,
        m: &Query<'_>,
        by_handle: bool,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        if self.open_file(m.fhandle).is_none() {
            return self.not_open(id, "query", out);
        }
        if !by_handle {
            let text = "Required query argument not present";
            return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_MISSING, text, out);
        }
        // A query may cancel an operation on the handle, so it does not wait for it.
        let operation = FileOperation::Query { code: m.infotype.0, argument: m.text().to_vec() };
        self.on_file(id, m.fhandle, "query", (Access::Unordered, operation), out)
    }

    /// Replies with one line per key: its value, or the key itself if it is unknown.
    ///
    /// Keys are separated by blanks or line ends, because the command line client sends both.
    fn configuration(&mut self, id: StreamId, keys: &[u8], out: &mut dyn ReplyOutputs) -> DriverTask {
        let mut words = keys.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).peekable();
        let first = words.next();
        if matches!(first, Some(b"xrootd" | b"cmsd")) && words.peek().is_none() {
            // The text of the configuration is sent only over TLS.
            replies::ok(out.link(PathId::CONTROL), id, b"\n\0");
            return DriverTask::Nothing;
        }
        let mut answer = Vec::new();
        for key in first.into_iter().chain(words) {
            let value = self.value_of(key);
            let value = value.as_deref().map_or(key, str::as_bytes);
            // A request may carry megabytes of keys, so the answer is limited.
            if answer.len() + value.len() >= CONFIG_ANSWER_BYTES_MAX {
                let text = "too many query config arguments.";
                return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_TOO_LONG, text, out);
            }
            answer.extend_from_slice(value);
            answer.push(b'\n');
        }
        if answer.is_empty() {
            let text = "query config argument not specified.";
            return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_MISSING, text, out);
        }
        replies::ok(out.link(PathId::CONTROL), id, &answer);
        DriverTask::Nothing
    }

    /// Returns the value of a key; `None` if it is unknown.
    fn value_of(&self, key: &[u8]) -> Option<Cow<'_, str>> {
        if key == auth::IDENTITY_KEY.as_bytes() {
            let caller = self.caller();
            let line = auth::encode_identity(caller.entity(), caller.identity.host());
            return Some(Cow::Owned(line));
        }
        let settings = &self.settings;
        let fixed = settings.configuration.iter().find(|(known, _)| known.as_bytes() == key);
        if let Some((_, value)) = fixed {
            return Some(Cow::Borrowed(value.as_str()));
        }
        let live = settings.live_values.iter().find(|(known, _)| known.as_bytes() == key);
        live.map(|(_, value)| Cow::Owned(value.get()))
    }

    pub(crate) fn set(&mut self, id: StreamId, m: &Set<'_>, out: &mut dyn ReplyOutputs) -> DriverTask {
        let text = String::from_utf8_lossy(m.text.split(|&b| b == 0).next().unwrap_or_default());
        let mut words = text.split_ascii_whitespace();
        match (words.next(), words.next()) {
            // The server has no monitoring, so the name is not used and the switch has no effect.
            (Some("appid"), Some(_)) | (Some("monitor"), Some("on" | "off")) => self.done(id, out),
            (Some("monitor"), Some("info")) => {
                // Without a monitoring stream the id of the record is 0.
                replies::ok(out.link(PathId::CONTROL), id, &[0; 4]);
                DriverTask::Nothing
            }
            _ => self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "invalid set parameter", out),
        }
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
