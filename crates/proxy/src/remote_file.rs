//! [`RemoteFile`]: a file at an origin. A disk cache will use it as its source.

use crate::limits::Requester;
use crate::origin::{OriginServer, RequestKind};
use crate::place::{OriginPlace, RequestFailure};
use client::{Bytes, Client, File, OpenWith, StatInfo, Url};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

/// A file at an origin. Dropping it closes it without a check of the reply.
pub(crate) struct RemoteFile {
    origin: Arc<OriginServer>,
    file: File,
    requester: Requester,
}

impl RemoteFile {
    /// Opens the file of `url` at an origin. If the caller leaves, the open ends, and the client closes
    /// the file when the origin answers late.
    pub(crate) async fn open(
        origin: Arc<OriginServer>,
        url: Url,
        with: OpenWith,
        requester: Requester,
    ) -> Result<Self, RequestFailure> {
        let open = async |client: Client, _| client.open(&url, &with).await;
        let request = (RequestKind::Open, requester);
        let file = match with.is_writable() {
            true => origin.change(request, open).await?,
            false => origin.run(request, open).await?,
        };
        Ok(Self { origin, file, requester })
    }

    /// Returns the status in the reply to the open, or requests it.
    pub(crate) async fn known_stat(&self) -> Result<StatInfo, RequestFailure> {
        match self.file.stat_at_open() {
            Some(stat) => Ok(stat),
            None => self.stat().await,
        }
    }

    async fn run<T>(
        &self,
        work: impl AsyncFnOnce(File) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        let turn = self.place().data.enter(self.requester).await?;
        let file = self.file.paced(turn.pacing());
        self.at_current_place(pin!(work(file))).await
    }

    /// Returns the server at which the file is open now.
    fn place(&self) -> Arc<OriginPlace> {
        self.origin.place(&self.file.location(), self.file.url())
    }

    /// Makes a request under the breaker of the server at which the file is open. A file that has lost
    /// its server may move to another one meanwhile, under no breaker.
    async fn at_current_place<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = Result<T, client::Error>>>,
    ) -> Result<T, RequestFailure> {
        let mut reopens = self.file.reopens();
        loop {
            reopens.mark_unchanged();
            let (place, is_moving) = (self.place(), self.file.is_moving());
            let request = async {
                if is_moving {
                    let result = work.as_mut().await;
                    self.place().note(&result);
                    return result.map_err(RequestFailure::Client);
                }
                place.run(work.as_mut()).await
            };
            tokio::select! {
                biased;
                result = request => match result {
                    Err(RequestFailure::NotAnswering(_)) if self.file.is_moving() => {}
                    result => return result,
                },
                _ = reopens.changed() => {}
            }
        }
    }

    /// Returns the current status.
    pub(crate) async fn stat(&self) -> Result<StatInfo, RequestFailure> {
        self.run(async |file| file.stat().await).await
    }

    /// Reads into all of `into` and returns the number of bytes. Fewer mean the end of the file,
    /// because a short reply is followed by another request. Page checksums are verified where the
    /// origin has them.
    pub(crate) async fn read_range(&self, offset: u64, into: &mut [u8]) -> Result<usize, RequestFailure> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let (at, length) = (offset.saturating_add(done as u64), rest.len());
            let data = self.run(async |file| file.read_pages(at, length).await).await?;
            let came = data.len().min(rest.len());
            if came == 0 {
                break;
            }
            if let (Some(place), Some(data)) = (rest.get_mut(..came), data.get(..came)) {
                place.copy_from_slice(data);
            }
            done += came;
        }
        Ok(done)
    }

    /// Reads ranges that lie within the file, in few requests.
    pub(crate) async fn read_ranges(&self, ranges: &[(u64, usize)]) -> Result<Vec<Bytes>, RequestFailure> {
        self.run(async |file| file.read_vector(ranges).await).await
    }

    /// Writes `data` at `offset`, with page checksums where the origin has them.
    pub(crate) async fn write(&self, offset: u64, data: Bytes) -> Result<(), RequestFailure> {
        self.run(async |file| file.write_pages(offset, data).await).await.map_err(RequestFailure::of_change)
    }

    /// Writes all data to stable storage.
    pub(crate) async fn sync(&self) -> Result<(), RequestFailure> {
        self.run(async |file| file.sync().await).await
    }

    /// Sets the size.
    pub(crate) async fn truncate(&self, size: u64) -> Result<(), RequestFailure> {
        self.run(async |file| file.truncate(size).await).await.map_err(RequestFailure::of_change)
    }

    /// Closes the file. After writes, only success means that the origin has it.
    pub(crate) async fn close(&self) -> Result<(), RequestFailure> {
        if !self.file.is_writable() && self.place().failure().is_some() {
            return Ok(());
        }
        self.run(async |file| file.close().await).await.map_err(RequestFailure::of_change)
    }
}
