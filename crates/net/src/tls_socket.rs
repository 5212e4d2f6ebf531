//! The encrypted side of a [`Socket`]: the handshake of a server, reads and writes of records.
//!
//! The methods here are called by those of `socket` once the connection has switched to TLS.

use crate::socket::Socket;
use crate::tls::{ENCRYPTED_BYTES_MAX, HandshakeStep, TlsRecords, TlsServer};
use base::Owner;
use rustix::fd::{AsFd, BorrowedFd};
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

/// Maximum number of records of a client in a handshake. A real client sends three to six.
const HANDSHAKE_RECORDS_MAX: usize = 32;

/// The alert that the server cannot perform a handshake (`internal_error`, fatal), as a record in clear
/// text.
const REFUSAL: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 80];

/// Maximum number of receives until other connections of the loop run.
const RECEIVES_MAX: usize = 4;

/// Sends encrypted bytes of a connection.
struct RecordWriter<'a>(&'a Socket);

impl Write for RecordWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_raw(&[IoSlice::new(bytes)], false)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_raw(pieces, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    /// Switches the connection to TLS as the server. `received` are bytes that came after the last
    /// request in clear text. Threads serve the handshakes of different owners in turn.
    ///
    /// # Errors
    /// The client did not complete the handshake in time, sent something else, or no thread was
    /// free. The socket must not be used any longer, except to close it.
    pub async fn accept_tls(
        &mut self,
        server: &TlsServer,
        owner: Owner,
        received: Vec<u8>,
    ) -> io::Result<()> {
        let handshake = self.handshake(server, owner, received);
        match tokio::time::timeout(server.limit(), handshake).await {
            Ok(result) => result,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not complete after {} s", server.limit().as_secs()),
            )),
        }
    }

    /// Reports to a client that begins a handshake that the server cannot perform it. Nothing must have
    /// been encrypted.
    pub fn refuse_tls(&self) {
        // The client may have disconnected already.
        let _ = self.write_raw(&[IoSlice::new(&REFUSAL)], false);
    }

    async fn handshake(&mut self, server: &TlsServer, owner: Owner, received: Vec<u8>) -> io::Result<()> {
        let mut records = server.begin(received)?;
        let mut steps = 0;
        loop {
            while records.wants_write() {
                match records.send(&mut RecordWriter(self)) {
                    Err(error) if is_blocked(&error) => {
                        poll_fn(|context| self.poll_writable(context)).await?;
                    }
                    sent => sent?,
                }
            }
            if !records.is_handshaking() {
                self.set_tls(records);
                return Ok(());
            }
            if !records.has_record() {
                poll_fn(|context| self.poll_fill(&mut records, context)).await?;
                continue;
            }
            steps += 1;
            if steps > HANDSHAKE_RECORDS_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many records"));
            }
            let step = match records.is_cheap() {
                true => Ok(HandshakeStep { result: records.decrypt(), records }),
                false => server.step(owner, records).await,
            };
            let HandshakeStep { records: stepped, result } = match step {
                Ok(step) => step,
                Err(error) => {
                    // Later alerts must be encrypted.
                    if steps == 1 {
                        self.refuse_tls();
                    }
                    return Err(error);
                }
            };
            records = stepped;
            if let Err(error) = result {
                // The alert reports the reason to the client, which may have disconnected already.
                let _ = records.send(&mut RecordWriter(self));
                return Err(error);
            }
        }
    }

    /// Receives encrypted bytes.
    fn poll_fill(&mut self, records: &mut TlsRecords, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = records.take_buffer();
        let received = self.poll_append(context, &mut buffer);
        records.put_buffer(buffer);
        if received.is_pending() {
            records.settle();
        }
        match ready!(received)? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Reads decrypted data, or waits for it.
    pub(crate) fn poll_decrypted(
        &mut self,
        mut records: Box<TlsRecords>,
        context: &mut Context<'_>,
        into: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        let read = self.poll_records(&mut records, context, into);
        self.set_tls(records);
        read
    }

    fn poll_records(
        &mut self,
        records: &mut TlsRecords,
        context: &mut Context<'_>,
        into: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        let mut receives = 0;
        loop {
            if let Some(read) = records.read(into)? {
                return Poll::Ready(Ok(read));
            }
            // Records may be empty without end, and other connections of the loop must run.
            if receives >= RECEIVES_MAX {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            receives += 1;
            match records.decrypt() {
                Ok(true) => continue,
                // The peer may wait for an alert, such as that it cannot renegotiate. Without room
                // the next write sends it, and the next receive reports a failure.
                Ok(false) if records.wants_write() => {
                    let _ = records.send(&mut RecordWriter(self));
                }
                Ok(false) => {}
                Err(error) => {
                    // The alert reports the reason to the client, which may have disconnected already.
                    let _ = records.send(&mut RecordWriter(self));
                    return Poll::Ready(Err(error));
                }
            }
            match ready!(self.poll_fill(records, context)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reports whether the connection has switched to TLS.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Writes as many bytes of these pieces as fit, at most [`crate::ENCRYPTED_PIECES_MAX`]. On an
    /// encrypted connection, no record has bytes of two pieces.
    pub fn write_each(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(mut records) = self.tls.take() else { return self.write_raw(pieces, false) };
        let written = self.write_records(&mut records, |records| records.encrypt_each(pieces));
        self.tls = Some(records);
        written
    }

    /// Encrypts as many bytes as fit, and sends them.
    pub(crate) fn write_records(
        &self,
        records: &mut TlsRecords,
        encrypt: impl FnOnce(&mut TlsRecords) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Bytes of an earlier write come first.
        records.send(&mut RecordWriter(self))?;
        let taken = encrypt(records)?;
        match records.send(&mut RecordWriter(self)) {
            // The rest is sent by the next write or by `flush_records`.
            Err(error) if is_blocked(&error) => Ok(taken),
            sent => sent.map(|()| taken),
        }
    }

    /// Returns the bytes that the encryption holds between two turns, at most
    /// [`crate::HELD_BYTES_MAX`]. 0 if the connection is not encrypted.
    pub fn held_bytes(&mut self) -> usize {
        self.tls_mut().map_or(0, TlsRecords::held_bytes)
    }

    /// Sends the rest of encrypted bytes.
    pub(crate) fn flush_records(&self, records: &mut TlsRecords) -> io::Result<()> {
        records.send(&mut RecordWriter(self))
    }

    /// Encrypts and sends part of a file. It is read into a pooled buffer first.
    pub(crate) fn send_file_records(
        &self,
        records: &mut TlsRecords,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> io::Result<usize> {
        records.send(&mut RecordWriter(self))?;
        let mut block = crate::take_block();
        let most = length.min(ENCRYPTED_BYTES_MAX).min(block.len());
        let read = rustix::io::pread(file.as_fd(), block.get_mut(..most).unwrap_or_default(), offset);
        let sent = match read {
            Ok(0) => Ok(0),
            Ok(read) => {
                let data = block.get(..read).unwrap_or_default();
                self.write_records(records, |records| records.encrypt(&[IoSlice::new(data)]))
            }
            Err(error) => Err(error.into()),
        };
        crate::give_block(block);
        sent
    }

    /// Sends the alert that announces the end, if there is room for it.
    pub(crate) fn close_records(&self, records: &mut TlsRecords) {
        records.close();
        // Without room for it the peer sees the end of the connection only.
        let _ = records.send(&mut RecordWriter(self));
    }
}

fn is_blocked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
