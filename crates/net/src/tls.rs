//! TLS of accepted connections: records in memory, and the settings that connections start with.
//!
//! [`crate::Socket`] moves the encrypted bytes. It holds a [`TlsRecords`] only after the connection
//! has switched to TLS, so other connections pay for one comparison per system call. The expensive
//! part of a handshake runs on threads ([`TlsServer`]), because a signature takes a quarter of a
//! millisecond or more, for which all connections of the loop would wait. The end of a handshake of
//! TLS 1.3 runs on the loop, because waking a thread costs more.

use crate::buffers::{MEDIUM_BYTES, SMALL_BYTES, give_medium, give_small, take_medium, take_small};
use base::Owner;
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};
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

// Part of a record fits into a small buffer.
const _: () = assert!(RECORD_HEADER_BYTES + RECORD_BYTES_MAX <= SMALL_BYTES);
const _: () = assert!(LIBRARY_BYTES_MAX <= MESSAGE_BYTES_MAX);

/// Maximum number of bytes of a client that only finishes a handshake of TLS 1.3, with its first request. A
/// chain of certificates, whose verification takes longer, has more.
const FINISH_BYTES_MAX: usize = 512;

/// Bytes that the library keeps for received records while the connection is idle.
const LIBRARY_BYTES_KEPT: usize = 4096;

/// Maximum number of bytes that the library keeps for the record that it processes.
const LIBRARY_BYTES_MAX: usize = RECORD_HEADER_BYTES + RECORD_BYTES_MAX;

/// Maximum number of bytes that the library keeps for a message of several records. It refuses longer
/// ones.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of the decrypted content of a record.
const CONTENT_BYTES_MAX: usize = 16 * 1024;

/// Bytes that encryption adds to a record: header, type of the content, authentication, and the
/// explicit nonce of TLS 1.2.
const EXPANSION_BYTES: usize = RECORD_HEADER_BYTES + 1 + 16 + 8;

/// Maximum number of pieces of one write of an encrypted connection.
pub const ENCRYPTED_PIECES_MAX: usize = 64;

/// Bytes of a full [`ENCRYPTED_BYTES_MAX`] with the expansion of all its records. Each piece of a write
/// may end in a short record.
const UNSENT_BYTES_MAX: usize =
    ENCRYPTED_BYTES_MAX + EXPANSION_BYTES * (ENCRYPTED_BYTES_MAX / CONTENT_BYTES_MAX + ENCRYPTED_PIECES_MAX);

/// Maximum number of bytes that an encrypted connection holds between two turns: encrypted ones that
/// the socket did not take, the decrypted content of one record, a message in the library, and received
/// bytes.
pub const HELD_BYTES_MAX: usize = UNSENT_BYTES_MAX + CONTENT_BYTES_MAX + MESSAGE_BYTES_MAX + MEDIUM_BYTES;

/// Maximum number of bytes that a handshake holds: a message in the library, and received bytes.
pub const HANDSHAKE_BYTES_MAX: usize = MESSAGE_BYTES_MAX + SMALL_BYTES;

/// Runs a step of a handshake of this owner on a thread. Returns `false` if too many wait.
type RunStep = dyn Fn(Owner, Box<dyn FnOnce() + Send>) -> bool + Send + Sync;

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
        run: impl Fn(Owner, Box<dyn FnOnce() + Send>) -> bool + Send + Sync + 'static,
        limit: Duration,
    ) -> Self {
        Self { config: Mutex::new(config), run: Box::new(run), limit }
    }

    /// Replaces certificate and key. Present connections keep theirs.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Returns certificate and key, for connections that another runtime than that of a loop encrypts.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the time limit of a handshake.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns a connection that has received nothing.
    pub(crate) fn begin(&self, received: Vec<u8>) -> io::Result<Box<TlsRecords>> {
        let mut connection = ServerConnection::new(self.config()).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        Ok(Box::new(TlsRecords {
            connection,
            received,
            at: 0,
            decrypted: 0,
            library_bytes: 0,
            message_bytes: 0,
            finish_bytes: 0,
        }))
    }

    /// Processes what a handshake has received, on a thread. Steps of one owner do not delay those of
    /// others.
    pub(crate) async fn step(&self, owner: Owner, mut records: Box<TlsRecords>) -> io::Result<HandshakeStep> {
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
        if !(self.run)(owner, Box::new(work)) {
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
    /// Number of decrypted bytes that were not read.
    decrypted: usize,
    /// Bytes that the library keeps for received records.
    library_bytes: usize,
    /// Bytes of records since the last one with data. The library keeps them if they are part of a
    /// message that a client sends after the handshake. It does not report whether they are.
    message_bytes: usize,
    /// Bytes of the records of a handshake of TLS 1.3 after the server's part.
    finish_bytes: usize,
}

/// A source that has nothing to read.
struct NothingToRead;

impl Read for NothingToRead {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl TlsRecords {
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Reports whether the server has sent its part of a handshake of TLS 1.3, with the signature and the
    /// key agreement.
    fn has_answered(&self) -> bool {
        let kind = self.connection.handshake_kind();
        matches!(kind, Some(HandshakeKind::Full | HandshakeKind::Resumed))
            && self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Reports whether the next step of the handshake needs no thread, because all that is left is the
    /// end of the client.
    pub(crate) fn is_cheap(&self) -> bool {
        let waiting = self.received.len() - self.at.min(self.received.len());
        self.has_answered() && self.finish_bytes + waiting <= FINISH_BYTES_MAX
    }

    /// Reports whether a complete record was received, or bytes that cannot become one. A handshake
    /// takes a step for each, so that single bytes do not cost a thread each.
    pub(crate) fn has_record(&self) -> bool {
        self.record_end().is_some()
    }

    /// Returns the end of the next record in the received bytes, or `None` if it is not complete.
    /// Bytes that cannot become a record count as one, so that the library refuses them.
    ///
    /// The library receives whole records only. `at` is therefore always the begin of a record, and
    /// the part of a record is in one place, where its memory is charged.
    fn record_end(&self) -> Option<usize> {
        let bytes = self.received.get(self.at..).filter(|bytes| !bytes.is_empty())?;
        let invalid = Some(self.received.len());
        if bytes.first().is_some_and(|kind| !RECORD_TYPES.contains(kind)) {
            return invalid;
        }
        let length = bytes.get(RECORD_LENGTH_AT..).and_then(<[u8]>::first_chunk).copied();
        let length = length.map(|length| usize::from(u16::from_be_bytes(length)))?;
        if length > RECORD_BYTES_MAX {
            return invalid;
        }
        let record = RECORD_HEADER_BYTES + length;
        (bytes.len() >= record).then_some(self.at + record)
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
            (capacity, false) if capacity < MEDIUM_BYTES => {
                // The rest of this record arrives, and probably more.
                let mut larger = take_medium();
                larger.extend_from_slice(&buffer);
                give_small(std::mem::replace(&mut buffer, larger));
            }
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

    /// Returns memory while the connection waits for its peer.
    pub(crate) fn settle(&mut self) {
        if self.is_handshaking() {
            return;
        }
        let waiting = self.received.len() - self.at.min(self.received.len());
        if self.received.capacity() >= MEDIUM_BYTES && waiting <= SMALL_BYTES {
            let mut smaller = take_small();
            smaller.extend_from_slice(self.received.get(self.at..).unwrap_or_default());
            give_medium(std::mem::replace(&mut self.received, smaller));
            self.at = 0;
        }
        if self.decrypted == 0 && self.library_bytes > LIBRARY_BYTES_KEPT {
            // The library returns the memory of a large record when it is asked to read again.
            let _ = self.connection.read_tls(&mut NothingToRead);
            self.library_bytes = 0;
        }
    }

    /// Returns the bytes of its buffers that are not in use by the present turn. The state of a
    /// connection itself is not included, like that of connections in clear text.
    pub(crate) fn held_bytes(&mut self) -> usize {
        let unsent = match self.wants_write() {
            // Without new records this only returns the sizes.
            true => self.connection.process_new_packets().map_or(0, |state| state.tls_bytes_to_write()),
            false => 0,
        };
        let library = self.library_bytes.max(self.message_bytes);
        let library = if library > LIBRARY_BYTES_KEPT { library } else { 0 };
        self.received.capacity() + self.decrypted + unsent + library
    }

    /// Adds bytes that were received before.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Processes received records until there is data or the end of the peer to read. Returns `false` if
    /// there are no more.
    pub(crate) fn decrypt(&mut self) -> io::Result<bool> {
        while let Some(end) = self.record_end() {
            let (record, in_handshake) = (end - self.at, self.is_handshaking());
            self.library_bytes = self.library_bytes.max(record).min(LIBRARY_BYTES_MAX);
            if in_handshake && self.has_answered() {
                self.finish_bytes = self.finish_bytes.saturating_add(record);
            }
            while self.at < end {
                let mut bytes = self.received.get(self.at..end).unwrap_or_default();
                let taken = self.connection.read_tls(&mut bytes)?;
                self.at += taken;
                let state = self
                    .connection
                    .process_new_packets()
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.decrypted = state.plaintext_bytes_to_read();
                // Peers may announce their end and leave the connection open, so no other event follows.
                if state.peer_has_closed() {
                    return Ok(true);
                }
            }
            if self.decrypted > 0 {
                // Data never interrupts a message.
                self.message_bytes = 0;
                return Ok(true);
            }
            // A handshake is charged as a whole.
            if !in_handshake {
                self.message_bytes = (self.message_bytes + record).min(MESSAGE_BYTES_MAX);
            }
        }
        if self.at >= self.received.len() {
            // The buffer stays here, because a thread of the handshake has no pool for it.
            self.received.clear();
            self.at = 0;
        }
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
            self.decrypted = self.decrypted.saturating_sub(taken);
        }
        Ok(Some(total))
    }

    /// Encrypts as many bytes of these pieces as there is room for. Returns their number.
    pub(crate) fn encrypt(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(pieces)
    }

    /// Like [`Self::encrypt`], but no record has bytes of two pieces.
    pub(crate) fn encrypt_each(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for piece in pieces {
            let part = self.connection.writer().write(piece)?;
            taken += part;
            if part < piece.len() {
                break;
            }
        }
        Ok(taken)
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

#[cfg(test)]
mod tests;
