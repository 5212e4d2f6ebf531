//! [`TransferAgent`]: requests of other programs, line by line, into the durable queue (`frm_xfragent`).
//!
//! ```text
//! OP[CLIENT] ID NOTIFY|- PRIORITY MODE PATH[?OPAQUE] [PATH...]     OP: + < from mass storage, & > to it,
//!                                                                      ^ = to it, then removed from the disk
//! - ID    ~ ID                                                     cancel
//! ?[OPS] [VARIABLES]                                               list
//! ![OPS]                                                           read the queue now
//! ```
//!
//! A request is durable when its line was handled, whether a process executes transfers or not.

use super::configured_paths::ConfiguredPaths;
use crate::residency::queue_limits;
use base::LogicalPath;
use config::Effective;
use residency::{
    EntryKey, Priority, QueueAgent, RequestId, RequestNotice, ResidencyPaths as _, Submission,
    TransferDirection, source_of,
};
use std::path::PathBuf;
use std::sync::Arc;

/// The client of requests without one.
const CLIENT: &str = "frm_xfragent";

/// Maximum length of a request id, and of the name of a client, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Where the answers of an agent go.
pub trait AgentOutput {
    /// Writes a line of an answer.
    fn answer(&mut self, line: &str);
    /// Reports a request that is refused, or a part of one without effect. It may contain text of others.
    fn complain(&mut self, text: &str);
}

/// An agent that puts requests into the queue.
pub struct TransferAgent {
    agent: QueueAgent,
    paths: ConfiguredPaths,
    directory: PathBuf,
    source: Arc<str>,
}

/// A request for transfers.
#[derive(PartialEq, Eq, Debug)]
struct AgentRequest<'l> {
    direction: TransferDirection,
    client: &'l str,
    id: &'l str,
    notify: &'l str,
    priority: Priority,
    mode: &'l str,
    paths: Vec<&'l [u8]>,
}

impl TransferAgent {
    /// Opens the queue of a configuration.
    pub fn open(effective: &Effective) -> Result<Self, String> {
        let directory = effective.transfer_directory();
        let agent =
            QueueAgent::open(&directory, queue_limits(effective)).map_err(|error| error.to_string())?;
        let root = effective.residency.remote_root.value.as_deref().unwrap_or_default();
        Ok(Self {
            agent,
            paths: ConfiguredPaths::new(effective, Vec::new()),
            directory,
            source: source_of(root).into(),
        })
    }

    /// Handles one line, without its end.
    pub fn line(&mut self, line: &[u8], output: &mut dyn AgentOutput) {
        let Some((op, rest)) = line.trim_ascii().split_first() else { return };
        let handled = match op {
            b'+' | b'<' => self.request((TransferDirection::In, false), rest, output),
            b'&' | b'>' => self.request((TransferDirection::Out, false), rest, output),
            b'^' | b'=' => self.request((TransferDirection::Out, true), rest, output),
            b'-' | b'~' => self.cancel(rest),
            b'?' => self.list(rest, output),
            b'!' => {
                self.agent.wake();
                Ok(())
            }
            _ => Err(format!("unknown operation in '{}'", String::from_utf8_lossy(line))),
        };
        if let Err(text) = handled {
            output.complain(&text);
        }
    }

    fn request(
        &mut self,
        (direction, removes): (TransferDirection, bool),
        rest: &[u8],
        output: &mut dyn AgentOutput,
    ) -> Result<(), String> {
        let request = parse(direction, rest)?;
        let id = RequestId(request.id.into());
        let submission = |path: &&[u8]| {
            let path = self.path((direction, removes), path)?;
            Ok(Submission {
                key: EntryKey { direction, path },
                priority: request.priority,
                source: self.source.clone(),
                client: request.client.into(),
                owner: request.client.into(),
                request: Some(id.clone()),
                removes,
            })
        };
        let submissions: Result<Vec<_>, String> = request.paths.iter().map(submission).collect();
        let refused = |reason: String| format!("request {} is refused: {reason}", request.id);
        let submissions = submissions.map_err(refused)?;
        match self.agent.submit(submissions, notice_of(&request)) {
            Ok(None) => {}
            Ok(Some(failure)) => return Err(refused(failure.to_string())),
            Err(error) => return Err(refused(error.to_string())),
        }
        let is_known = |to: &str| to.is_empty() || to.starts_with("file:///") || to.starts_with("udp://");
        if request.notify != "-"
            && let Some(other) = request.notify.split('\r').find(|to| !is_known(to))
        {
            output.complain(&format!("request {}: notifications ({other}) are not sent", request.id));
        }
        Ok(())
    }

    /// Returns the path of a request, after a check that it is transferred at all.
    fn path(
        &self,
        (direction, removes): (TransferDirection, bool),
        word: &[u8],
    ) -> Result<LogicalPath, String> {
        let shown = String::from_utf8_lossy(word);
        let path = word.split(|byte| *byte == b'?').next().unwrap_or_default();
        let path = LogicalPath::parse(path).map_err(|_| format!("{shown} is not an absolute path"))?;
        match self.paths.of(&path).missing_option(direction, removes) {
            Some(option) => Err(format!("{shown} is not on an export with {option}")),
            None => Ok(path),
        }
    }

    fn cancel(&mut self, rest: &[u8]) -> Result<(), String> {
        let id = words(rest)?.next().ok_or("request id not specified")?;
        self.agent.cancel(RequestId(id.into())).map_err(|error| format!("request {id}: {error}"))
    }

    fn list(&mut self, rest: &[u8], output: &mut dyn AgentOutput) -> Result<(), String> {
        let text = std::str::from_utf8(rest).map_err(|_| "the line is not UTF-8 text")?;
        let (ops, names) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
        let mut variables: Vec<&str> = names.split_ascii_whitespace().collect();
        if let Some(unknown) = variables.iter().find(|name| !crate::frm_admin::VARIABLES.contains(name)) {
            return Err(format!("invalid variable {unknown}"));
        }
        if variables.is_empty() {
            variables.push("lfn");
        }
        let (ins, outs) = (ops.contains(['+', '<']), ops.contains(['&', '^', '>', '=']));
        let is_wanted = |direction| match direction {
            TransferDirection::In => ins || !outs,
            TransferDirection::Out => outs || !ins,
        };
        residency::visit_queue(&self.directory, &mut |entry| {
            if is_wanted(entry.key.direction) {
                let values = variables.iter().map(|name| crate::frm_admin::entry_value(&entry, name) + " ");
                output.answer(&values.collect::<String>());
            }
        })
        .map_err(|error| error.to_string())?;
        output.answer("");
        Ok(())
    }
}

/// Returns the notifications of a request. Failures are reported unless its mode is quiet, and files that have come only if
/// it wants that.
fn notice_of(request: &AgentRequest<'_>) -> Option<RequestNotice> {
    (request.notify != "-").then(|| RequestNotice {
        destinations: request.notify.to_owned(),
        on_success: request.mode.contains(['n', 's']),
        on_failure: !request.mode.contains('q'),
    })
}

/// Returns the words of a line that must be text.
fn words(rest: &[u8]) -> Result<impl Iterator<Item = &str>, String> {
    let text = std::str::from_utf8(rest).map_err(|_| "the line is not UTF-8 text".to_owned())?;
    Ok(text.split_ascii_whitespace())
}

/// Parses a request behind its operation. Paths may be any bytes but blanks.
fn parse(direction: TransferDirection, rest: &[u8]) -> Result<AgentRequest<'_>, String> {
    let mut fields = rest.splitn(6, |byte| *byte == b' ');
    let mut text = |what: &str| {
        let field = fields.next().ok_or_else(|| format!("{what} not specified"))?;
        std::str::from_utf8(field).map_err(|_| format!("the {what} is not UTF-8 text"))
    };
    let client = text("client")?;
    let (id, notify, priority) = (text("request id")?, text("notification")?, text("priority")?);
    let mode = text("mode")?;
    if id.is_empty() || id.len() > NAME_BYTES_MAX || client.len() > NAME_BYTES_MAX {
        return Err("the request id or the client is empty or too long".to_owned());
    }
    let number = priority.parse::<i64>().map_err(|_| format!("{priority} is not a priority"))?;
    let paths = fields.next().unwrap_or_default();
    let paths: Vec<_> = paths.split(|byte| *byte == b' ').filter(|path| !path.is_empty()).collect();
    if paths.is_empty() {
        return Err(format!("request {id} has no path"));
    }
    let client = if client.is_empty() { CLIENT } else { client };
    let priority = Priority::new(u8::try_from(number.clamp(0, 2)).unwrap_or_default());
    Ok(AgentRequest { direction, client, id, notify, priority, mode, paths })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_form_of_xrootd() {
        let request = parse(TransferDirection::In, b"u.1:2@h ID1 - 7 wq /a?x=y /b").unwrap();
        assert_eq!((request.client, request.id, request.notify), ("u.1:2@h", "ID1", "-"));
        assert_eq!((request.priority.number(), request.paths), (2, vec![&b"/a?x=y"[..], b"/b"]));
        assert_eq!(parse(TransferDirection::In, b" ID1 - -1 w /a").unwrap().client, CLIENT);
        for bad in [&b""[..], b" ID1", b" ID1 - 0 w", b" ID1 - x w /a", b"  - 0 w /a", b" \xff - 0 w /a"] {
            assert!(parse(TransferDirection::In, bad).is_err(), "{bad:?}");
        }
    }
}
