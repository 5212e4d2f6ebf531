//! [`Checkpoint`]: changes of a file that can be undone together.

use bytes::Bytes;
use rawclient::Encoded;
use wire::xroot::codes::ChkpointOpcode;
use wire::xroot::reply::ChkpointSizes;
use wire::xroot::request::{Chkpoint, Request, Truncate, Write};
use wire::xroot::{FileHandle, RequestHeader, StreamId};
use wire::{Decode, FixedLayout};

use super::handle::RecoverableHandle;
use super::write::FileWriter;
use crate::failure::Error;

/// The checkpoint of a file.
pub(super) struct Checkpoint<'a> {
    handle: &'a RecoverableHandle,
}

impl<'a> Checkpoint<'a> {
    pub(super) fn of(handle: &'a RecoverableHandle) -> Self {
        Self { handle }
    }

    /// Begins the checkpoint.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.send(ChkpointOpcode::BEGIN).await?;
        self.handle.set_checkpoint(true);
        Ok(())
    }

    /// Commits all changes since it began.
    pub(super) async fn commit(&self) -> Result<(), Error> {
        self.send(ChkpointOpcode::COMMIT).await?;
        self.handle.set_checkpoint(false);
        Ok(())
    }

    /// Undoes all changes since it began.
    pub(super) async fn roll_back(&self) -> Result<(), Error> {
        self.send(ChkpointOpcode::ROLLBACK).await?;
        self.handle.set_checkpoint(false);
        Ok(())
    }

    /// Returns its maximum and current size.
    pub(super) async fn sizes(&self) -> Result<ChkpointSizes, Error> {
        let body = self.send(ChkpointOpcode::QUERY).await?;
        ChkpointSizes::decode(&body).map_err(|error| self.handle.error("checkpoint", error))
    }

    async fn send(&self, opcode: ChkpointOpcode) -> Result<Vec<u8>, Error> {
        let request =
            |fhandle| Encoded::new(&Request::Chkpoint(Chkpoint { fhandle, opcode, embedded: None }));
        Ok(self.handle.ask("checkpoint", false, Bytes::new(), request).await?.body)
    }

    /// Writes `data` at `offset`.
    pub(super) async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let (from, dlen) = FileWriter::of(self.handle).check("checkpointed write", offset, data.len())?;
        let request = |fhandle: FileHandle| {
            let mut inner = Vec::new();
            let write = Request::Write(Write { fhandle, offset: from, pathid: 0, dlen });
            write.encode(StreamId::default(), &mut inner);
            let embedded = inner.first_chunk().map(RequestHeader::from_bytes);
            Encoded::new(&Request::Chkpoint(Chkpoint { fhandle, opcode: ChkpointOpcode::XEQ, embedded }))
        };
        self.handle.ask("checkpointed write", false, data, request).await.map(|_| ())
    }

    /// Sets the size of the file.
    pub(super) async fn truncate(&self, size: u64) -> Result<(), Error> {
        let (offset, _) = FileWriter::of(self.handle).check("checkpointed truncate", size, 0)?;
        let request = |fhandle: FileHandle| {
            let mut inner = Vec::new();
            let truncate = Request::Truncate(Truncate { fhandle, offset, path: b"" });
            truncate.encode(StreamId::default(), &mut inner);
            let embedded = inner.first_chunk().map(RequestHeader::from_bytes);
            Encoded::new(&Request::Chkpoint(Chkpoint { fhandle, opcode: ChkpointOpcode::XEQ, embedded }))
        };
        self.handle.ask("checkpointed truncate", false, Bytes::new(), request).await.map(|_| ())
    }
}
