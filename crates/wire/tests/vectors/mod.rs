//! Loader of the recorded xroot exchanges in `vectors/xroot`, shared by the tests that replay them.
#![allow(dead_code, unreachable_pub)] // each test program uses only a part

use std::path::Path;

use serde::Deserialize;

/// A recorded scenario.
#[derive(Deserialize)]
pub struct Scenario {
    pub name: String,
    pub connections: Vec<Connection>,
}

/// A TCP connection of a scenario.
#[derive(Deserialize)]
pub struct Connection {
    pub connection: u32,
    pub frames: Vec<Frame>,
}

/// A recorded frame.
#[derive(Deserialize, Clone)]
pub struct Frame {
    pub i: u32,
    pub dir: Direction,
    pub kind: Kind,
    pub len: usize,
    #[serde(deserialize_with = "unhex")]
    pub hex: Vec<u8>,
    #[serde(default)]
    pub truncated: bool,
    pub request: Option<String>,
    pub status: Option<String>,
    pub streamid: Option<String>,
    pub dlen: Option<i64>,
    pub response_to: Option<String>,
    pub embedded_streamid: Option<String>,
    pub embedded_status: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    C2s,
    S2c,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Handshake,
    HandshakeResponse,
    Request,
    Response,
    TlsBytes,
    BoundPayload,
}

impl Frame {
    /// Returns the whole frame. The recording omits parts of long frames, which are filled with
    /// zeros; only data is affected, never a header or a list.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.hex.clone();
        bytes.resize(self.len, 0);
        bytes
    }
}

fn unhex<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.ok_or_else(|| serde::de::Error::custom("not hexadecimal"))?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Returns all scenarios, in the order of their names.
pub fn load() -> Vec<Scenario> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/xroot");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json") && !path.ends_with("index.json"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 81, "only {} scenarios", paths.len());
    let parse = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    paths.iter().map(parse).collect()
}

/// Calls `check` for every frame of `kind`, with a text that identifies the frame, and returns
/// their number.
pub fn each_frame(kind: Kind, mut check: impl FnMut(&Frame, &str)) -> usize {
    let mut count = 0;
    for scenario in load() {
        for connection in &scenario.connections {
            for frame in connection.frames.iter().filter(|frame| frame.kind == kind) {
                check(
                    frame,
                    &format!("{} connection {} frame {}", scenario.name, connection.connection, frame.i),
                );
                count += 1;
            }
        }
    }
    count
}
