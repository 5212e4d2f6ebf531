//! The JSON of replies.

use hyper::StatusCode;
use serde_json::json;
use std::fmt::Write as _;
use vfs::{Locality, TapeFileState, TapeProgress, TapeState};

/// The end of the state of a request.
pub(super) const STATE_END: &str = "]}";

/// Returns the description of a problem (RFC 9457).
pub(super) fn problem(status: StatusCode, detail: &str) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    json!({"type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail}).to_string()
}

pub(super) fn request_id(id: &str) -> String {
    json!({"requestId": id}).to_string()
}

/// Returns the page by which clients find the API.
pub(super) fn discovery(site: &str, uri: &str) -> String {
    json!({
        "sitename": site,
        "description": "Tape REST API of this server",
        "endpoints": [{"uri": uri, "version": "v1", "metadata": {}}],
    })
    .to_string()
}

/// Returns the state of a request up to its files.
pub(super) fn state_begin(id: &str, state: &TapeState) -> String {
    let mut text =
        format!("{{\"id\":{},\"createdAt\":{},\"startedAt\":{}", json!(id), state.created, state.started);
    append_time("completedAt", state.completed, &mut text);
    text.push_str(",\"files\":[");
    text
}

/// Appends the states of files.
pub(super) fn append_files(files: &[TapeFileState], is_first: bool, into: &mut String) {
    for (number, file) in files.iter().enumerate() {
        if number > 0 || !is_first {
            into.push(',');
        }
        let state = match file.progress {
            TapeProgress::Submitted => "SUBMITTED",
            TapeProgress::Started => "STARTED",
            TapeProgress::Completed => "COMPLETED",
            TapeProgress::Failed => "FAILED",
            TapeProgress::Cancelled => "CANCELLED",
        };
        // Writing to a string cannot fail.
        let _ = write!(into, "{{\"path\":{},\"state\":\"{state}\"", json!(file.path.text()));
        append_time("startedAt", file.started, into);
        append_time("finishedAt", file.finished, into);
        if let Some(error) = &file.error {
            let _ = write!(into, ",\"error\":{}", json!(error));
        }
        into.push('}');
    }
}

fn append_time(key: &str, time: Option<u64>, into: &mut String) {
    if let Some(time) = time {
        // Writing to a string cannot fail.
        let _ = write!(into, ",\"{key}\":{time}");
    }
}

/// Appends the place of a file.
pub(super) fn append_place(path: &str, locality: &Result<Locality, String>, into: &mut String) {
    let place = match locality {
        Ok(locality) => json!({"path": path, "locality": name(*locality)}),
        Err(error) => json!({"path": path, "error": error}),
    };
    // Writing to a string cannot fail.
    let _ = write!(into, "{place}");
}

fn name(locality: Locality) -> &'static str {
    match locality {
        Locality::Disk => "DISK",
        Locality::Tape => "TAPE",
        Locality::DiskAndTape => "DISK_AND_TAPE",
        Locality::None => "NONE",
        Locality::Unavailable => "UNAVAILABLE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::LogicalPath;
    use serde_json::Value;

    #[test]
    fn a_state_in_pages_is_one_document() {
        let file = |path: &str, progress, error: Option<&str>| TapeFileState {
            path: LogicalPath::parse(path.as_bytes()).unwrap(),
            progress,
            started: Some(5),
            finished: None,
            error: error.map(str::to_owned),
        };
        let first = file("/a\"\n", TapeProgress::Started, None);
        let state =
            TapeState { created: 4, started: 5, completed: Some(9), files: vec![first], is_last: false };
        let mut text = state_begin("id", &state);
        append_files(&state.files, true, &mut text);
        append_files(&[file("/b", TapeProgress::Failed, Some("no\tdrive"))], false, &mut text);
        append_files(&[], false, &mut text);
        text.push_str(STATE_END);
        let wanted = json!({
            "id": "id", "createdAt": 4, "startedAt": 5, "completedAt": 9, "files": [
                {"path": "/a\"\n", "state": "STARTED", "startedAt": 5},
                {"path": "/b", "state": "FAILED", "startedAt": 5, "error": "no\tdrive"},
            ]
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), wanted);
    }
}
