//! Loader of the recorded cms exchanges in `vectors/cms`, shared by the tests that replay them.
#![allow(dead_code, unreachable_pub)] // each test program uses only a part

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

/// A recorded scenario.
#[derive(Deserialize)]
struct Scenario {
    connections: BTreeMap<String, Connection>,
    events: Vec<Event>,
}

/// The kind of a connection and the programs at its ends.
#[derive(Deserialize)]
struct Connection {
    link: Link,
    client: String,
    server: String,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    Node,
    Redirector,
}

/// A frame, or the opening or closing of a connection.
#[derive(Deserialize)]
struct Event {
    conn: String,
    dir: String,
    hex: Option<String>,
    #[serde(default)]
    decoded: Value,
}

/// A recorded frame and its context.
pub struct Recorded {
    /// Scenario, connection and event, for messages.
    pub what: String,
    pub scenario: String,
    pub link: Link,
    pub client: String,
    pub server: String,
    /// The frame was sent by the node or redirector to its parent or manager.
    pub to_parent: bool,
    /// The frame was sent by a script.
    pub synthetic: bool,
    /// The login on this connection has not been answered yet.
    pub awaits_login_answer: bool,
    pub bytes: Vec<u8>,
    /// The decoded form in the recording.
    pub decoded: Value,
}

/// Calls `check` for every recorded frame and returns their number.
pub fn each_frame(mut check: impl FnMut(&Recorded)) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/cms");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 26, "only {} scenarios", paths.len());
    let mut count = 0;
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        count += each_frame_of(name, scenario, &mut check);
    }
    count
}

fn each_frame_of(name: &str, scenario: Scenario, check: &mut impl FnMut(&Recorded)) -> usize {
    let mut logging_in = BTreeSet::new();
    let mut count = 0;
    for (index, event) in scenario.events.into_iter().enumerate() {
        let Some(hex) = event.hex else {
            logging_in.remove(&event.conn);
            continue;
        };
        let connection = &scenario.connections[&event.conn];
        let to_parent = event.dir == "c2s";
        let sender = if to_parent { &connection.client } else { &connection.server };
        let recorded = Recorded {
            what: format!("{name} {} event {index}", event.conn),
            scenario: name.to_owned(),
            link: connection.link,
            client: connection.client.clone(),
            server: connection.server.clone(),
            to_parent,
            synthetic: sender.contains("synthetic"),
            awaits_login_answer: logging_in.contains(&event.conn),
            bytes: unhex(&hex),
            decoded: event.decoded,
        };
        check(&recorded);
        count += 1;
        if recorded.decoded["name"] == "login" {
            match to_parent {
                true => logging_in.insert(event.conn),
                false => logging_in.remove(&event.conn),
            };
        }
    }
    count
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the arguments of the decoded form in the recording, in the order sent. Absent texts are
/// null, and those at the end are omitted.
pub fn decoded_arguments(decoded: &Value) -> Vec<Value> {
    let mut arguments: Vec<Value> = Vec::new();
    if let Some(hosts) = decoded.pointer("/args/0/hosts").or(decoded.get("hosts")) {
        arguments.extend(hosts.as_array().unwrap().iter().cloned());
    } else if let Some(args) = decoded["args"].as_array() {
        arguments.extend(args.iter().map(decoded_argument));
    } else if let Some(path) = decoded.get("raw_path") {
        // The script set the raw bit on a message without a path.
        arguments.extend(Some(path.clone()).filter(|_| decoded["name"] != "stats"));
    } else if let Some(opaque) = decoded.get("opaque") {
        arguments.push(json!(String::from_utf8(unhex(opaque.as_str().unwrap())).unwrap()));
    } else if let Some(value) = decoded.get("value") {
        arguments.extend([value.clone(), decoded["text"].clone()]);
    }
    while arguments.last().is_some_and(Value::is_null) {
        arguments.pop();
    }
    arguments
}

fn decoded_argument(argument: &Value) -> Value {
    for kind in ["short", "int", "bin"] {
        if let Some(value) = argument.get(kind) {
            return value.clone();
        }
    }
    // A length of 0 is an absent text; a length of 1 (the NUL) is an empty text.
    if argument["len"] == 0 { Value::Null } else { argument["str"].clone() }
}
