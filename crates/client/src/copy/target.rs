//! The target of a copy: opens it, completes the remainder of an earlier copy, finishes it, or
//! gives it up.

use std::sync::Arc;

use bytes::Bytes;
use wire::xroot::flags::OpenOptions;

use super::Copier;
use super::archived::{self, Adding};
use super::failure::CopyError;
use super::local::{Left, LocalTarget};
use super::metadata::PreservedMetadata;
use super::opening::{REMOVE_TIME, close_and_remove, unless_stopped};
use super::options::{CopyOptions, Watch};
use super::overwrite::{create, not_a_source, overwrite};
use super::place::Place;
use super::pump::{ByteSink, WriteMode};
use super::sequence::{Out, Sequence, Taker};
use super::source::SourceReader;
use super::upload_note::UploadNote;
use crate::client::Client;
use crate::file::{File, OpenWith};
use crate::identity::RemoteFileIdentity;
use crate::url::Url;

/// Bytes that are read back from a server at a time.
const SUM_BYTES: usize = 4 * 1024 * 1024;

/// An open target.
pub(super) enum CopyTarget {
    Local(LocalTarget),
    Output,
    Remote {
        file: File,
        url: Url,
        is_new: bool,
        note: Option<Arc<UploadNote>>,
    },
    /// A ZIP archive, to which a member is added.
    Archive {
        file: File,
        url: Url,
        adding: Adding,
    },
}

impl CopyTarget {
    /// Opens or creates the target. Returns also the offset at which the copy begins.
    pub(super) async fn open(
        copier: &Copier,
        place: &Place,
        source: &SourceReader,
        options: &CopyOptions,
        watch: &Watch,
    ) -> Result<(Self, u64), CopyError> {
        let (mut target, left) = match place {
            Place::Stream => (Self::Output, None),
            Place::Local(path) => {
                let (path, options, id) = (path.clone(), options.clone(), source.local_id());
                // If the caller no longer waits, the result is dropped, which removes the file.
                let making = copier.disk.run(move || LocalTarget::create(&path, &options, id));
                let making = async { making.await.unwrap_or(Err(CopyError::Cancelled)) };
                let (target, left) = unless_stopped(watch, making).await?;
                (Self::Local(target), left)
            }
            Place::Remote(url) if options.zip_append => {
                let (file, adding) = archived::open(copier, url, source, options, watch).await?;
                (Self::Archive { file, url: url.clone(), adding }, None)
            }
            Place::Remote(url) => Self::open_remote(copier, url, source, options, watch).await?,
        };
        let from = match left {
            Some(left) => unless_stopped(watch, target.go_on(copier, place, source, left)).await?,
            None => 0,
        };
        target.begin_note(source, from)?;
        Ok((target, from))
    }

    /// Records the source of the target before any data is written.
    fn begin_note(&mut self, source: &SourceReader, from: u64) -> Result<(), CopyError> {
        match self {
            Self::Local(target) => target.begin(source.identity.as_deref()),
            Self::Remote { file, note, .. } => {
                if let Some(open) = note
                    && !open.begin(source.identity.as_deref(), file, from)
                {
                    *note = None;
                }
                Ok(())
            }
            Self::Archive { .. } | Self::Output => Ok(()),
        }
    }

    async fn open_remote(
        copier: &Copier,
        url: &Url,
        source: &SourceReader,
        options: &CopyOptions,
        watch: &Watch,
    ) -> Result<(Self, Option<Left>), CopyError> {
        let mut with = OpenWith::update();
        let mut note = None;
        if options.resume {
            note = UploadNote::open(copier, url, options).await?;
            // A file to be overwritten is not continued.
            if !options.force
                && let Some((file, bytes)) = unless_stopped(watch, open_left(&copier.client, url)).await?
            {
                not_a_source(&source.place, &source.identities(), url, &file)?;
                let noted = note.as_ref().and_then(|note| note.of(&file));
                let target = Self::Remote { file, url: url.clone(), is_new: false, note };
                return Ok((target, Some(Left { bytes, noted })));
            }
        } else if options.persist_on_successful_close {
            with = with.persist_on_successful_close();
        }
        with = with.make_path();
        if options.coerce {
            with = with.force();
        }
        if let Some(size) = source.size {
            with = with.expected_size(size);
        }
        if let Some(mode) = source.kept.filter(|_| options.preserve).and_then(|kept| kept.mode) {
            with = with.mode(u16::try_from(mode & 0o777).unwrap_or(0o644));
        }
        let file = if options.force {
            overwrite(copier, url, source, with, watch).await?
        } else {
            create(copier, url, &with.with(OpenOptions::NEW), watch).await?
        };
        Ok((Self::Remote { file, url: url.clone(), is_new: true, note }, None))
    }

    /// Converts the target to a sink for the bytes after `from`. The sink computes the checksums of
    /// the whole file; at a server, those of the existing bytes are added later.
    pub(super) async fn into_flow(
        self,
        copier: &Copier,
        from: u64,
        sums: Vec<digest::RunningChecksum>,
        ordered: bool,
        options: &CopyOptions,
    ) -> Result<(ByteSink, OpenEnding), CopyError> {
        let disk = copier.disk.clone();
        let sequence = |next, ordered, out, sums| Sequence::new(next, ordered, Taker { sums, out }, disk);
        Ok(match self {
            Self::Local(target) => {
                // A pipe or a device has no offsets.
                let ordered = ordered || !target.is_regular();
                let (target, sums, late) = if ordered {
                    let read_back = move || target.sum_up(from, sums);
                    let summed = copier.disk.run(read_back).await;
                    let (target, sums) = summed.unwrap_or(Err(CopyError::Cancelled))?;
                    (target, sums, Vec::new())
                } else {
                    (target, Vec::new(), sums)
                };
                let sequence = sequence(from, ordered, Out::File(target), sums);
                (
                    ByteSink::Sequence(sequence.clone()),
                    OpenEnding { sequence: Some(sequence), remote: None, late },
                )
            }
            Self::Output => {
                let sequence = sequence(from, true, Out::Stream, sums);
                let late = Vec::new();
                (
                    ByteSink::Sequence(sequence.clone()),
                    OpenEnding { sequence: Some(sequence), remote: None, late },
                )
            }
            Self::Remote { file, url, is_new, note } => {
                let sequence = (!sums.is_empty()).then(|| sequence(0, true, Out::Nowhere, sums));
                let pages = options.pages && file.channel().has_page_io();
                let how = if pages { WriteMode::Pages } else { WriteMode::Plain };
                let into =
                    ByteSink::Remote { file: file.clone(), how, sums: sequence.clone(), note: note.clone() };
                let remote = RemoteTarget { file, url, is_new, adding: None, note };
                (into, OpenEnding { sequence, remote: Some(remote), late: Vec::new() })
            }
            Self::Archive { file, url, adding } => {
                let mut sums = sums;
                sums.push(digest::RunningChecksum::new(digest::Algorithm::Zcrc32));
                let sequence = Some(sequence(0, true, Out::Nowhere, sums));
                let how = WriteMode::Member { from: adding.data_at(), checkpoint: adding.checkpoint };
                let into = ByteSink::Remote { file: file.clone(), how, sums: sequence.clone(), note: None };
                let is_new = !adding.checkpoint;
                let remote = RemoteTarget { file, url, is_new, adding: Some(adding), note: None };
                (into, OpenEnding { sequence, remote: Some(remote), late: Vec::new() })
            }
        })
    }
}

/// Opens the remainder of an earlier copy at a server.
async fn open_left(client: &Client, url: &Url) -> Result<Option<(File, u64)>, CopyError> {
    let found = client.file_system(url).find(&url.path).await.map_err(CopyError::target)?;
    let Some(stat) = found else { return Ok(None) };
    if stat.is_dir() {
        return Err(CopyError::IsDirectory(url.to_string()));
    }
    let file = client.open(url, &OpenWith::update()).await.map_err(CopyError::target)?;
    let bytes = file.stat_at_open().map_or(stat.size, |stat| stat.size);
    Ok(Some((file, bytes)))
}

/// A file at a server that is being written.
struct RemoteTarget {
    file: File,
    url: Url,
    is_new: bool,
    /// Set if the file is an archive, to which the data is added as a member.
    adding: Option<Adding>,
    note: Option<Arc<UploadNote>>,
}

/// The end of a copy, successful or not.
pub(super) struct OpenEnding {
    sequence: Option<Sequence>,
    remote: Option<RemoteTarget>,
    /// Checksums of data that arrived out of order, computed at the end.
    late: Vec<digest::RunningChecksum>,
}

/// A target that is complete, but does not have its final name yet.
pub(super) struct WrittenTarget {
    local: Option<LocalTarget>,
    remote: Option<RemoteTarget>,
    /// The requested checksums.
    pub(super) sums: Vec<digest::Checksum>,
}

impl OpenEnding {
    /// Handles the arrival of all bytes.
    pub(super) async fn written(self, copier: &Copier, size: u64) -> Result<WrittenTarget, CopyError> {
        let (mut local, mut sums) = (None, Vec::new());
        if let Some(sequence) = self.sequence {
            let (_, taker) = sequence.end().await;
            sums = taker.sums;
            if let Out::File(target) = taker.out {
                local = Some(target);
            }
        }
        if let Some(target) = local.take() {
            let late = self.late;
            let summed = copier.disk.run(move || target.sum_up_all(size, late)).await;
            let (target, late) = summed.unwrap_or(Err(CopyError::Cancelled))?;
            sums.extend(late);
            local = Some(target);
        }
        let sums = sums.into_iter().map(digest::RunningChecksum::finish).collect();
        Ok(WrittenTarget { local, remote: self.remote, sums })
    }

    /// Handles a failure, so that no file that looks complete is left. At a server all bytes up to
    /// `whole_to` are written.
    pub(super) async fn give_up(self, copier: &Copier, whole_to: u64, options: &CopyOptions) {
        let (mut local, mut local_to) = (None, 0);
        if let Some(sequence) = self.sequence {
            let (next, taker) = sequence.end().await;
            local_to = next;
            if let Out::File(target) = taker.out {
                local = Some(target);
            }
        }
        if let Some(target) = local {
            copier.disk.run(move || target.leave(local_to)).await;
        }
        if let Some(remote) = self.remote {
            remote.give_up(copier, whole_to, options).await;
        }
    }
}

impl RemoteTarget {
    async fn give_up(self, copier: &Copier, whole_to: u64, options: &CopyOptions) {
        if let Some(note) = &self.note {
            if options.resume { note.reach(whole_to) } else { note.remove() }
        }
        let clean = async {
            if let Some(adding) = self.adding.as_ref().filter(|_| !self.is_new) {
                adding.give_up(&self.file).await;
            } else if options.resume {
                if self.file.truncate(whole_to).await.is_ok() {
                    self.file.close().await.ok();
                }
            } else if self.is_new {
                close_and_remove(&copier.client, &self.file, options.persist_on_successful_close).await;
            }
        };
        // An unresponsive server is abandoned.
        tokio::time::timeout(REMOVE_TIME, clean).await.ok();
    }
}

impl WrittenTarget {
    /// Returns the identity of the file at its server.
    pub(super) fn identity(&self) -> Option<RemoteFileIdentity> {
        self.remote.as_ref().and_then(|remote| remote.file.identity())
    }

    /// Reports whether parts of it can be replaced.
    pub(super) fn is_repairable(&self) -> bool {
        self.remote.is_some() || self.local.as_ref().is_some_and(LocalTarget::is_regular)
    }

    /// Reads back a part. It may be shorter than requested if the file ends in a hole.
    pub(super) async fn read_back(
        &mut self,
        copier: &Copier,
        at: u64,
        length: usize,
    ) -> Result<Bytes, CopyError> {
        if let Some(remote) = &self.remote {
            return remote.file.read_range(true, at, length).await.map_err(CopyError::target);
        }
        let mut block = copier.client.blocks().take(length);
        self.on_disk(copier, move |target| {
            block.data().resize(length, 0);
            let got = target.read_back(at, block.data())?;
            block.data().truncate(got);
            Ok(block.into_bytes())
        })
        .await
    }

    /// Rewrites a part.
    pub(super) async fn rewrite(&mut self, copier: &Copier, at: u64, data: Bytes) -> Result<(), CopyError> {
        if let Some(remote) = &self.remote {
            return remote.file.write_pages(at, data).await.map_err(CopyError::target);
        }
        self.on_disk(copier, move |target| target.rewrite(at, &data)).await
    }

    /// Recomputes the checksums from the current content.
    pub(super) async fn sum_up_again(
        &mut self,
        copier: &Copier,
        size: u64,
        mut sums: Vec<digest::RunningChecksum>,
    ) -> Result<(), CopyError> {
        if sums.is_empty() {
            return Ok(());
        }
        if let Some(target) = self.local.take() {
            let summed = copier.disk.run(move || target.sum_up_all(size, sums)).await;
            let (target, summed) = summed.unwrap_or(Err(CopyError::Cancelled))?;
            (self.local, sums) = (Some(target), summed);
        } else {
            let mut at = 0;
            while at < size {
                let length = usize::try_from(size - at).unwrap_or(usize::MAX).min(SUM_BYTES);
                let data = self.read_back(copier, at, length).await?;
                if data.is_empty() {
                    let place = self.remote.as_ref().map(|remote| remote.url.to_string()).unwrap_or_default();
                    return Err(CopyError::Short { place, at, size });
                }
                sums.iter_mut().for_each(|sum| sum.update(&data));
                at += data.len() as u64;
            }
        }
        self.sums = sums.into_iter().map(digest::RunningChecksum::finish).collect();
        Ok(())
    }

    async fn on_disk<T: Send + 'static>(
        &mut self,
        copier: &Copier,
        work: impl FnOnce(&mut LocalTarget) -> Result<T, CopyError> + Send + 'static,
    ) -> Result<T, CopyError> {
        let Some(mut target) = self.local.take() else { return Err(CopyError::Cancelled) };
        let done = copier.disk.run(move || {
            let done = work(&mut target);
            (target, done)
        });
        let (target, done) = done.await.ok_or(CopyError::Cancelled)?;
        self.local = Some(target);
        done
    }

    /// Sets the size and times, closes the file, and renames it to its final name.
    pub(super) async fn finish(
        self,
        copier: &Copier,
        size: u64,
        ends_with_hole: bool,
        kept: Option<PreservedMetadata>,
    ) -> Result<Option<Url>, CopyError> {
        if let Some(target) = self.local {
            let named = copier.disk.run(move || target.finish(size, kept)).await;
            named.unwrap_or(Err(CopyError::Cancelled))?;
        }
        let Some(remote) = self.remote else { return Ok(None) };
        if let Some(adding) = &remote.adding {
            // The last checksum was added for this purpose.
            let crc32 = self.sums.last().and_then(|sum| sum.bytes().first_chunk());
            let crc32 = crc32.map_or(0, |bytes| u32::from_le_bytes(*bytes));
            if let Err(error) = adding.finish(&remote.file, size, crc32).await {
                remote.give_up(copier, 0, &CopyOptions::of(copier.client.settings())).await;
                return Err(error);
            }
            remote.file.close().await.map_err(CopyError::target)?;
            // A checksum of the archive by the server does not apply to its member.
            return Ok(None);
        }
        if ends_with_hole {
            remote.file.truncate(size).await.map_err(CopyError::target)?;
        }
        if let Some(note) = &remote.note {
            note.remove();
        }
        remote.file.close().await.map_err(CopyError::target)?;
        Ok(Some(remote.file.location()))
    }

    /// Discards the target after a failed check.
    pub(super) async fn discard(self, copier: &Copier, options: &CopyOptions) {
        drop(self.local);
        if let Some(remote) = self.remote {
            let anew = CopyOptions { resume: false, ..options.clone() };
            remote.give_up(copier, 0, &anew).await;
        }
    }
}
