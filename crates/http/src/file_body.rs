//! Bodies of replies that are parts of files.
//!
//! A small body is read before its reply. A large one is read by a task of its own while it is sent,
//! at most one chunk ahead.

use crate::call::RequestFile;
use crate::door::HttpFrontEnd;
use crate::handover::HandedBody;
use crate::memory::HttpCharge;
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use crate::served_connection::ServedConnection;
use crate::transfer_status::{self, TrailedParts};
use crate::{CHUNK_BYTES, INLINE_BYTES_MAX, SENDFILE_BYTES_MIN, SMALL_CHUNK_BYTES};
use auth::SystemRng;
use base::{Error, MemoryPurpose, Rng};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE};
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The type of data. A browser must not guess that a file is a page of this server.
const BINARY: &str = "application/octet-stream";

/// Parts that wait for the connection.
const PARTS_AHEAD: usize = 1;

/// A file and the parts of it that a client wants.
pub(crate) struct FileReply {
    pub(crate) file: RequestFile,
    pub(crate) size: u64,
    /// The ranges; `None` for the whole file.
    pub(crate) ranges: Option<Vec<Range<u64>>>,
    /// The connection, in whose limit the task counts that reads the file.
    pub(crate) connection: Arc<ServedConnection>,
    /// The client wants the result of the transfer behind the body.
    pub(crate) has_trailer: bool,
    /// The body can be handed over, see [`FileHandover`](crate::handover::FileHandover).
    pub(crate) by_sendfile: bool,
}

/// A piece of a body.
enum BodyPiece {
    Text(String),
    File(Range<u64>),
}

/// Bytes of a file with their share of the memory for chunks.
struct FileChunk {
    bytes: Vec<u8>,
    _share: Option<ChunkShare>,
}

/// The memory of a large chunk: a part of that for chunks, and of that of the process.
type ChunkShare = (OwnedSemaphorePermit, HttpCharge);

/// Takes the memory of a large chunk, if there is some.
fn chunk_share(shared: &HttpFrontEnd) -> Option<ChunkShare> {
    let permit = shared.chunks.clone().try_acquire_owned().ok()?;
    Some((permit, shared.memory.take(None, MemoryPurpose::Data, CHUNK_BYTES)?))
}

impl AsRef<[u8]> for FileChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the reply with the wanted parts of a file.
pub(crate) async fn reply(wanted: FileReply) -> Result<RequestReply, RequestRefusal> {
    let FileReply { file, size, ranges, connection, has_trailer, by_sendfile } = wanted;
    let status = if ranges.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut content_range = None;
    let mut content_type = BINARY.to_owned();
    let pieces = match ranges.as_deref() {
        None => vec![BodyPiece::File(0..size)],
        Some([range]) => {
            content_range = Some(format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1)));
            vec![BodyPiece::File(range.clone())]
        }
        Some(ranges) => {
            let boundary = boundary();
            content_type = format!("multipart/byteranges; boundary={boundary}");
            multipart(ranges, size, &boundary)
        }
    };
    let length = pieces.iter().map(BodyPiece::length).sum();
    let is_sent = by_sendfile && length >= SENDFILE_BYTES_MIN && file.lend().is_some() && file.knows_memory();
    let body = match (has_trailer, length <= INLINE_BYTES_MAX) {
        (false, false) if is_sent && let [BodyPiece::File(range)] = pieces.as_slice() => {
            ReplyBody::Handed(HandedBody::new(&connection, file, range.clone()))
        }
        (true, _) => TrailedParts::body(streamed(file, pieces, connection), length),
        (false, true) => ReplyBody::Whole(inline(file, &pieces).await?),
        (false, false) => ReplyBody::Parts { parts: streamed(file, pieces, connection), left: Some(length) },
    };
    let mut replied = reply::with_body(status, body);
    if has_trailer {
        transfer_status::announce(&mut replied);
    }
    reply::set(&mut replied, CONTENT_TYPE, &content_type);
    if let Some(range) = content_range {
        reply::set(&mut replied, CONTENT_RANGE, &range);
    }
    Ok(replied)
}

impl BodyPiece {
    fn length(&self) -> u64 {
        match self {
            Self::Text(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
            Self::File(range) => range.end.saturating_sub(range.start),
        }
    }
}

/// Returns a boundary that no file contains by chance or by intent.
fn boundary() -> String {
    let mut random = [0; 16];
    SystemRng.fill(&mut random);
    random.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn multipart(ranges: &[Range<u64>], size: u64, boundary: &str) -> Vec<BodyPiece> {
    let part = |range: &Range<u64>| {
        let (first, last) = (range.start, range.end.saturating_sub(1));
        let text = format!(
            "\r\n--{boundary}\r\nContent-type: {BINARY}\r\nContent-range: bytes {first}-{last}/{size}\r\n\r\n"
        );
        [BodyPiece::Text(text), BodyPiece::File(range.clone())]
    };
    let end = BodyPiece::Text(format!("\r\n--{boundary}--\r\n"));
    ranges.iter().flat_map(part).chain([end]).collect()
}

/// Reads a small body.
async fn inline(file: RequestFile, pieces: &[BodyPiece]) -> Result<Bytes, RequestRefusal> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            BodyPiece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            BodyPiece::File(range) => {
                let mut at = range.start;
                while at < range.end {
                    let length = usize::try_from(range.end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                    let read = file.read(at, length, &mut bytes).await?;
                    if read == 0 {
                        return Err(RequestRefusal::new(
                            StatusCode::INTERNAL_SERVER_ERROR,
                            "the file has become shorter",
                        ));
                    }
                    at += u64::try_from(read).unwrap_or(u64::MAX);
                }
            }
        }
    }
    Ok(Bytes::from(bytes))
}

/// Returns the parts of a range, which a task of its own reads.
pub(crate) fn rest(
    file: RequestFile,
    range: Range<u64>,
    connection: Arc<ServedConnection>,
) -> mpsc::Receiver<io::Result<Bytes>> {
    streamed(file, vec![BodyPiece::File(range)], connection)
}

/// Returns the parts of a body, which a task of its own reads.
fn streamed(
    file: RequestFile,
    pieces: Vec<BodyPiece>,
    connection: Arc<ServedConnection>,
) -> mpsc::Receiver<io::Result<Bytes>> {
    let (to, parts) = mpsc::channel(PARTS_AHEAD);
    tokio::spawn(async move {
        for piece in pieces {
            let sent = match piece {
                BodyPiece::Text(text) => to.send(Ok(Bytes::from(text))).await.is_ok(),
                BodyPiece::File(range) => send_range(&file, range, connection.shared(), &to).await,
            };
            if !sent {
                return;
            }
        }
    });
    parts
}

/// Sends a range. Returns `false` if nothing more is to be sent.
async fn send_range(
    file: &RequestFile,
    range: Range<u64>,
    shared: &HttpFrontEnd,
    to: &mpsc::Sender<io::Result<Bytes>>,
) -> bool {
    let mut at = range.start;
    while at < range.end {
        // A place for the part first, so that no memory is held meanwhile.
        let Ok(place) = to.reserve().await else { return false };
        // Without shared memory the parts are small, so that slow clients delay nobody.
        let share = chunk_share(shared);
        let most = if share.is_some() { CHUNK_BYTES } else { SMALL_CHUNK_BYTES };
        let length = usize::try_from(range.end - at).unwrap_or(most).min(most);
        let mut bytes = Vec::with_capacity(length);
        match file.read(at, length, &mut bytes).await {
            Ok(0) => {
                place.send(Err(shorter()));
                return false;
            }
            Ok(read) => {
                at += u64::try_from(read).unwrap_or(u64::MAX);
                place.send(Ok(Bytes::from_owner(FileChunk { bytes, _share: share })));
            }
            Err(Error { text, .. }) => {
                place.send(Err(io::Error::other(text)));
                return false;
            }
        }
    }
    true
}

pub(crate) fn shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_framed_and_their_length_is_exact() {
        let pieces = multipart(&[0..3, 4..7], 12, "b");
        let length: u64 = pieces.iter().map(BodyPiece::length).sum();
        let mut body = String::new();
        for piece in pieces {
            match piece {
                BodyPiece::Text(text) => body.push_str(&text),
                BodyPiece::File(range) => {
                    body.push_str(&"hello world\n"[range.start as usize..range.end as usize])
                }
            }
        }
        let part = |range: &str| {
            format!("\r\n--b\r\nContent-type: {BINARY}\r\nContent-range: bytes {range}/12\r\n\r\n")
        };
        assert_eq!(body, format!("{}hel{}o w\r\n--b--\r\n", part("0-2"), part("4-6")));
        assert_eq!(length, body.len() as u64);
        assert_ne!(boundary(), boundary());
    }
}
