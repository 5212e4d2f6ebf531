//! Loader of recorded exchanges, as far as a session without TLS and authentication supports them.

use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
pub struct Scenario {
    pub name: String,
    pub connections: Vec<Connection>,
}

#[derive(Deserialize)]
pub struct Connection {
    pub connection: u32,
    pub frames: Vec<Frame>,
}

#[derive(Deserialize)]
pub struct Frame {
    pub i: u32,
    pub dir: String,
    pub kind: String,
    pub len: usize,
    hex: String,
    #[serde(default)]
    pub truncated: bool,
    pub request: Option<String>,
}

impl Frame {
    /// Returns the whole frame. The recording omits parts of long frames, which become zeros; this
    /// affects only data.
    pub fn bytes(&self) -> Vec<u8> {
        let pairs = self.hex.as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let mut bytes: Vec<u8> = pairs.map(byte).collect();
        bytes.resize(self.len, 0);
        bytes
    }
}

/// Returns all scenarios in the order of their names.
pub fn load() -> Vec<Scenario> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/xroot");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|e| e == "json") && !path.ends_with("index.json"))
        .collect();
    paths.sort();
    paths.iter().map(|path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).collect()
}
