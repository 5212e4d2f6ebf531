//! TLS of accepted connections: records in memory, and the settings that connections start with.
//!
//! [`crate::Socket`] moves the encrypted bytes. It holds a [`TlsRecords`] only after the connection
//! has switched to TLS, so other connections pay for one comparison per system call. The expensive
//! part of a handshake runs on threads ([`TlsServer`]), because a signature takes about a
//! millisecond, for which all connections of the loop would wait.

use crate::buffers::{MEDIUM_BYTES, give_medium, give_small, take_medium, take_small};
use rustls::{ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of bytes that are encrypted before the socket must have taken the earlier ones.
/// A client that stops reading holds this much in memory.
pub const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;

/// Length of the header of a record, and the position of the length of its content.
const RECORD_HEADER_BYTES: usize = 5;
const RECORD_LENGTH_AT: usize = 3;

/// Maximum length of the content of a record: 2^14 bytes and the expansion by encryption.
const RECORD_BYTES_MAX: usize = 16 * 1024 + 2048;

/// The first bytes of records: change of ciphers, alert, handshake, data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

// The record that a handshake waits for fits into a small buffer.
const _: () = assert!(RECORD_HEADER_BYTES + RECORD_BYTES_MAX <= crate::SMALL_BYTES);

/// Runs a step of a handshake on a thread. Returns `false` if too many wait.
type RunStep = dyn Fn(Box<dyn FnOnce() + Send>) -> bool + Send + Sync;

/// The settings of new TLS connections, shared by all loops.
pub struct TlsServer {
    config: Mutex<Arc<ServerConfig>>,
    run: Box<RunStep>,
    limit: Duration,
}

impl TlsServer {
    /// Creates the settings: certificate and key, the threads for handshakes, and the time limit of
    /// a handshake.
    pub fn new(
        config: Arc<ServerConfig>,
        run: impl Fn(Box<dyn FnOnce() + Send>) -> bool + Send + Sync + 'static,
        limit: Duration,
    ) -> Self {
        Self { config: Mutex::new(config), run: Box::new(run), limit }
    }

    /// Replaces certificate and key. Present connections keep theirs.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Returns the time limit of a handshake.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns a connection that has received nothing.
    pub(crate) fn begin(&self, received: Vec<u8>) -> io::Result<Box<TlsRecords>> {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        Ok(Box::new(TlsRecords { connection, received, at: 0 }))
    }

    /// Processes what a handshake has received, on a thread.
    pub(crate) async fn step(&self, mut records: Box<TlsRecords>) -> io::Result<HandshakeStep> {
        let (done, ended) = tokio::sync::oneshot::channel();
        let work = move || {
            // The time of the handshake may be over.
            if done.is_closed() {
                return;
            }
            let result = records.decrypt();
            // The connection may have been closed meanwhile.
            let _ = done.send(HandshakeStep { records, result });
        };
        if !(self.run)(Box::new(work)) {
            return Err(io::Error::other("too many TLS handshakes wait for a thread"));
        }
        ended.await.map_err(|_| io::Error::other("the thread of the TLS handshake has ended"))
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The result of a step of a handshake.
pub(crate) struct HandshakeStep {
    pub(crate) records: Box<TlsRecords>,
    pub(crate) result: io::Result<bool>,
}

/// The records of one connection.
pub(crate) struct TlsRecords {
    connection: ServerConnection,
    /// Encrypted bytes that were received, processed up to `at`.
    received: Vec<u8>,
    at: usize,
}

impl TlsRecords {
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Reports whether a complete record was received, or bytes that cannot become one. A handshake
    /// takes a step for each, so that single bytes do not cost a thread each.
    pub(crate) fn has_record(&self) -> bool {
        let Some(bytes) = self.received.get(self.at..).filter(|bytes| !bytes.is_empty()) else {
            return false;
        };
        if bytes.first().is_some_and(|kind| !RECORD_TYPES.contains(kind)) {
            return true;
        }
        let length = bytes.get(RECORD_LENGTH_AT..).and_then(<[u8]>::first_chunk).copied();
        let length = length.map(|length| usize::from(u16::from_be_bytes(length)));
        length.is_some_and(|length| length > RECORD_BYTES_MAX || bytes.len() >= RECORD_HEADER_BYTES + length)
    }

    /// Takes the buffer for received bytes, to be filled and returned by [`Self::put_buffer`].
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        if self.at > 0 {
            self.received.drain(..self.at.min(self.received.len()));
            self.at = 0;
        }
        let mut buffer = std::mem::take(&mut self.received);
        match (buffer.capacity(), self.is_handshaking()) {
            (0, true) => return take_small(),
            (0, false) => return take_medium(),
            _ => {}
        }
        if buffer.len() == buffer.capacity() {
            // A receive without room would look like the end of the connection.
            buffer.reserve(MEDIUM_BYTES);
        }
        buffer
    }

    /// Stores the buffer if it holds bytes, otherwise returns it to its pool: an idle connection
    /// owns none.
    pub(crate) fn put_buffer(&mut self, buffer: Vec<u8>) {
        if !buffer.is_empty() {
            self.received = buffer;
        } else if buffer.capacity() < MEDIUM_BYTES {
            give_small(buffer);
        } else {
            give_medium(buffer);
        }
    }

    /// Adds bytes that were received before.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Processes received bytes until there is data to read. Returns `false` if there are no more.
    pub(crate) fn decrypt(&mut self) -> io::Result<bool> {
        while self.at < self.received.len() {
            let mut bytes = self.received.get(self.at..).unwrap_or_default();
            let taken = self.connection.read_tls(&mut bytes)?;
            self.at += taken;
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if state.plaintext_bytes_to_read() > 0 || taken == 0 {
                return Ok(true);
            }
        }
        // The buffer stays here, because a thread of the handshake has no pool for it.
        self.received.clear();
        self.at = 0;
        Ok(false)
    }

    /// Copies decrypted data. Returns `None` if there is none, `Some(0)` after the end of the peer.
    pub(crate) fn read(&mut self, into: &mut [MaybeUninit<u8>]) -> io::Result<Option<usize>> {
        let mut reader = self.connection.reader();
        let mut total = 0;
        // Each record is a piece of its own, and records may have one byte.
        while let Some(room) = into.get_mut(total..).filter(|room| !room.is_empty()) {
            let taken = match reader.fill_buf() {
                Ok(data) => crate::batch::copy(data, room),
                // The next call returns the end or the error.
                Err(_) if total > 0 => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The peer closed without the alert that announces it. Requests are framed, so nothing
                // incomplete is taken for complete.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(error),
            };
            if taken == 0 {
                break;
            }
            reader.consume(taken);
            total += taken;
        }
        Ok(Some(total))
    }

    /// Encrypts as many bytes of these pieces as there is room for. Returns their number.
    pub(crate) fn encrypt(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(pieces)
    }

    /// Announces the end of the data to the peer.
    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Sends encrypted bytes until none are left.
    pub(crate) fn send(&mut self, to: &mut dyn Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(to)?;
        }
        Ok(())
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }
}
