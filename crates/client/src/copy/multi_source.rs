//! A copy of one file from several sources.
//!
//! All replicas that a deep locate finds, or that the URL names, are opened and used according to
//! their rates ([`Shares`]). Blocks have page checksums. A source that fails, reports another size,
//! or does not answer is given up, and its blocks are requested from others. Sources that appear
//! later join.
//!
//! A source is untrusted if its [`sample`] differs from that of most others, or if it is marked as
//! such later. It is no longer used, and the blocks that it sent can be replaced
//! ([`MultiSource::suspects`]).

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wire::xroot::flags::LocateOptions;

use super::Copier;
use super::failure::CopyError;
use super::options::{CopyOptions, Share};
use super::provenance::Provenance;
use super::sample::{self, Sample, most};
use super::shares::{BlockAttempt, Shares};
use crate::answers::StatInfo;
use crate::client::Client;
use crate::failure::Error;
use crate::file::{File, OpenWith};
use crate::settings::Source as Setting;
use crate::url::Url;

/// Maximum number of sources of one copy.
pub const SOURCES_MAX: usize = 32;
/// Maximum number of blocks in flight from one source.
const PLACES: usize = 4;
/// Maximum number of blocks in flight from each connection, if a source has several.
const PLACES_OF_STREAM: usize = 2;
/// Time to wait for other sources after the first source is open.
const OTHERS_TIME: Duration = Duration::from_secs(2);
/// Time between searches for more sources.
const SEARCH_TIME: Duration = Duration::from_secs(5);
/// Interval at which blocks are checked for a second request elsewhere.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// The reason to give up a source with different content.
const DIFFERS: &str = "its content is not that of the other sources";

/// The sources of one file. Clones share them.
#[derive(Clone)]
pub(super) struct MultiSource(Arc<MultiSourceParts>);

struct MultiSourceParts {
    /// A client that does not wait for lost servers, because others have the same file.
    client: Client,
    url: Url,
    /// The places of the file, if known; otherwise they are located.
    mirrors: Vec<Url>,
    with: OpenWith,
    pages: bool,
    most: usize,
    places: usize,
    stat: StatInfo,
    /// The sample that a joining source must match. It is not read while there is only one source.
    sample: tokio::sync::OnceCell<Sample>,
    state: Mutex<MultiSourceState>,
    /// Notified when a slot is free, a source has joined, or one was given up.
    changed: Notify,
}

#[derive(Default)]
struct MultiSourceState {
    shares: Shares,
    members: Vec<SourceServer>,
    given: Provenance,
    searching: Option<tokio::task::AbortHandle>,
}

impl Drop for MultiSourceParts {
    fn drop(&mut self) {
        if let Some(searching) = &self.state().searching {
            searching.abort();
        }
    }
}

/// A source; its index is that of [`Shares`].
struct SourceServer {
    file: File,
    at: String,
    failed: Option<String>,
    /// Set if the source is untrusted because it sent wrong data.
    is_untrusted: bool,
}

/// An open source.
struct OpenSource {
    file: File,
    stat: StatInfo,
}

impl MultiSource {
    /// Finds and opens the sources. They are `mirrors`, if that is not empty.
    pub(super) async fn open(
        copier: &Copier,
        url: &Url,
        mirrors: Vec<Url>,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let limit = options.sources.clamp(1, SOURCES_MAX).max(url.others.len() + 1).min(SOURCES_MAX);
        let mut settings = copier.client.settings().clone();
        for (name, value) in [("ReadRecovery", "false"), ("ConnectionRetry", "1")] {
            // The names and values are valid.
            settings.set(name, value, Setting::Option).ok();
        }
        let streams = usize::try_from(settings.sub_streams_per_channel.clamp(1, 16)).unwrap_or(1);
        let client = copier.client.with_settings(settings);
        let with = if options.coerce { OpenWith::read().force() } else { OpenWith::read() };
        let mirrors = if url.others.is_empty() { mirrors } else { url.each().collect() };
        // A lost source can be replaced, but not the server that knows the locations. That one is
        // waited for as the user has configured.
        let places = if mirrors.is_empty() { find(&copier.client, url).await } else { Ok(mirrors.clone()) };
        let places = places.map_err(CopyError::source)?;
        let mut opened = open_all(&client, places, &with, limit).await?;
        // The size that most sources have; in a tie the first one.
        let sizes: Vec<u64> = opened.iter().map(|opened| opened.stat.size).collect();
        let size = most(&sizes, u64::eq).and_then(|index| sizes.get(index)).copied().unwrap_or(0);
        opened.retain(|opened| opened.stat.size == size);
        let compared = compare(opened, size, options.pages).await;
        let Some(first) = compared.agree.first() else {
            return Err(CopyError::NoSource { place: url.to_string(), reasons: Vec::new() });
        };
        let sources = Arc::new(MultiSourceParts {
            stat: first.stat.clone(),
            sample: tokio::sync::OnceCell::new_with(compared.sample),
            client,
            url: url.clone(),
            mirrors,
            with,
            pages: options.pages,
            most: limit,
            places: PLACES.max(PLACES_OF_STREAM * streams),
            state: Mutex::default(),
            changed: Notify::new(),
        });
        compared.agree.into_iter().for_each(|opened| sources.join(opened, None));
        compared.differ.into_iter().for_each(|(opened, why)| sources.join(opened, Some(why)));
        let searching = tokio::spawn(search(Arc::downgrade(&sources))).abort_handle();
        sources.state().searching = Some(searching);
        Ok(Self(sources))
    }

    /// Returns the status on which the sources agree.
    pub(super) fn stat(&self) -> &StatInfo {
        &self.0.stat
    }

    /// Returns a place where the file is open, for further requests.
    pub(super) fn location(&self) -> Option<Url> {
        let state = self.0.state();
        let (_, member) = state.members.iter().enumerate().find(|(n, _)| state.shares.is_present(*n))?;
        Some(member.file.location())
    }

    /// Returns the active sources: index and file.
    pub(super) fn present(&self) -> Vec<(usize, File)> {
        let state = self.0.state();
        let present = state.members.iter().enumerate().filter(|(number, _)| state.shares.is_present(*number));
        present.map(|(number, member)| (number, member.file.clone())).collect()
    }

    /// Returns the client for requests about the sources, which does not wait for lost servers.
    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Marks a source as untrusted: it is no longer used, and its blocks are suspect.
    pub(super) fn mark_untrusted(&self, member: usize, why: String) {
        if let Some(member) = self.0.state().members.get_mut(member) {
            member.is_untrusted = true;
        }
        self.0.leave(member, why);
    }

    /// Returns the parts sent by untrusted sources.
    pub(super) fn suspects(&self) -> Vec<Range<u64>> {
        let state = self.0.state();
        let is_untrusted =
            |source: usize| state.members.get(source).is_some_and(|member| member.is_untrusted);
        state
            .given
            .all()
            .into_iter()
            .filter(|(_, source)| is_untrusted(*source))
            .map(|(part, _)| part)
            .collect()
    }

    /// Returns the source of each part.
    pub(super) fn given(&self) -> Vec<(Range<u64>, usize)> {
        self.0.state().given.all()
    }

    /// Records that a part now has the content of a source.
    pub(super) fn record(&self, part: Range<u64>, member: usize) {
        self.0.state().given.set(part, member);
    }

    /// Returns the error that no source is left.
    pub(super) fn nobody(&self) -> CopyError {
        nobody(&self.0.url, &self.0.state())
    }

    /// Reads a block from this source, which is given up if it fails.
    pub(super) async fn read_of(&self, member: usize, offset: u64, length: usize) -> Option<Bytes> {
        let file = self.0.state().members.get(member).map(|member| member.file.clone())?;
        let why = match file.read_range(self.0.pages, offset, length).await {
            Ok(data) if data.len() == length => return Some(data),
            Ok(data) => self.0.short(offset, &data),
            Err(error) => error.to_string(),
        };
        self.0.leave(member, why);
        None
    }

    /// Returns the number of blocks that may be in progress at the same time, which is more than
    /// the number of slots. While a lane writes its block, its slot is free. If no lane waited for
    /// the slot then, the whole file would appear to be requested, and blocks would always be
    /// requested twice.
    pub(super) fn lanes(&self) -> usize {
        (self.0.places + 1) * self.0.most
    }

    /// Returns the number of block slots of the sources, and the best block size for now.
    pub(super) fn asked_best(&self) -> (u64, u64) {
        let state = self.0.state();
        (state.shares.places() as u64, state.shares.block_bytes())
    }

    /// Returns the share of each source.
    pub(super) fn shares(&self) -> Vec<Share> {
        let state = self.0.state();
        let share = |(number, member): (usize, &SourceServer)| Share {
            source: member.at.clone(),
            bytes: state.shares.bytes(number),
            failed: member.failed.clone(),
        };
        state.members.iter().enumerate().map(share).collect()
    }

    /// Reads a block from any source.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, CopyError> {
        let mut running = JoinSet::new();
        let mut asked: Vec<(BlockAttempt, usize)> = Vec::new();
        let result = self.race(offset, length, &mut running, &mut asked).await;
        let mut state = self.0.state();
        asked.iter().for_each(|(attempt, _)| state.shares.forget(*attempt));
        drop(state);
        self.0.changed.notify_waiters();
        result
    }

    async fn race(
        &self,
        offset: u64,
        length: usize,
        running: &mut JoinSet<(BlockAttempt, usize, Result<Bytes, Error>)>,
        asked: &mut Vec<(BlockAttempt, usize)>,
    ) -> Result<Bytes, CopyError> {
        loop {
            if running.is_empty() {
                let member = self.place().await?;
                self.ask(member, offset, length, running, asked);
            }
            tokio::select! {
                ended = running.join_next() => {
                    let Some(Ok((attempt, member, read))) = ended else { return Err(CopyError::Cancelled) };
                    asked.retain(|(other, _)| *other != attempt);
                    match read {
                        Ok(data) if data.len() == length => {
                            if self.0.accept(attempt, member, offset..offset + length as u64) {
                                return Ok(data);
                            }
                        }
                        Ok(data) => {
                            self.0.give_up(attempt, member, self.0.short(offset, &data));
                        }
                        Err(error) => self.0.give_up(attempt, member, error.to_string()),
                    }
                }
                () = tokio::time::sleep(LOOK_TIME) => self.look(offset, length, running, asked),
            }
        }
    }

    /// Waits for a free slot at a source.
    async fn place(&self) -> Result<usize, CopyError> {
        self.0.state().shares.wait(true);
        let found = self.next_place().await;
        self.0.state().shares.wait(false);
        found
    }

    async fn next_place(&self) -> Result<usize, CopyError> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.0.state();
                if let Some(member) = state.shares.place(&[]) {
                    return Ok(member);
                }
                if state.shares.present() == 0 {
                    return Err(nobody(&self.0.url, &state));
                }
            }
            changed.await;
        }
    }

    fn ask(
        &self,
        member: usize,
        offset: u64,
        length: usize,
        running: &mut JoinSet<(BlockAttempt, usize, Result<Bytes, Error>)>,
        asked: &mut Vec<(BlockAttempt, usize)>,
    ) {
        let mut state = self.0.state();
        let attempt = state.shares.begin(member, offset, Instant::now());
        asked.push((attempt, member));
        let Some(file) = state.members.get(member).map(|member| member.file.clone()) else { return };
        let pages = self.0.pages;
        running.spawn(async move { (attempt, member, file.read_range(pages, offset, length).await) });
    }

    /// Requests the block from another source, too, if it is overdue.
    fn look(
        &self,
        offset: u64,
        length: usize,
        running: &mut JoinSet<(BlockAttempt, usize, Result<Bytes, Error>)>,
        asked: &mut Vec<(BlockAttempt, usize)>,
    ) {
        let now = Instant::now();
        let not: Vec<usize> = asked.iter().map(|(_, member)| *member).collect();
        let (second, overdue) = {
            let state = self.0.state();
            (state.shares.second(offset, &not, now), state.shares.overdue(now))
        };
        if let Some(member) = overdue {
            self.0.leave(member, "it did not answer".to_owned());
            if not == [member] {
                // Its answer is abandoned, and the block is requested from another source.
                let mut state = self.0.state();
                asked.drain(..).for_each(|(attempt, _)| state.shares.forget(attempt));
                running.abort_all();
                running.detach_all();
            }
        }
        if let Some(member) = second {
            self.ask(member, offset, length, running, asked);
        }
    }
}

impl MultiSourceParts {
    fn state(&self) -> MutexGuard<'_, MultiSourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a source unless it is known already. With a reason it is recorded as unusable.
    fn join(&self, OpenSource { file, stat }: OpenSource, not: Option<String>) {
        let at = file.location().authority();
        let mut state = self.state();
        let known = state.members.iter().any(|member| member.at == at);
        let surplus = not.is_none() && state.shares.present() >= self.most;
        if known || stat.size != self.stat.size || surplus {
            return;
        }
        let number = state.shares.join(self.places);
        if not.is_some() {
            state.shares.leave(number);
        }
        state.members.push(SourceServer { file, at, is_untrusted: not.is_some(), failed: not });
        drop(state);
        self.changed.notify_waiters();
    }

    /// Adds a later source if it has the same file.
    async fn join_later(&self, opened: OpenSource) {
        if opened.stat.size != self.stat.size {
            return;
        }
        let size = self.stat.size;
        let ours = self.sample.get_or_try_init(async || {
            let first = {
                let state = self.state();
                let present = state.members.iter().enumerate().find(|(n, _)| state.shares.is_present(*n));
                present.map(|(_, member)| member.file.clone()).ok_or(())?
            };
            sample::take(&first, size, self.pages).await.map_err(|_| ())
        });
        let (Ok(ours), Ok(theirs)) = (ours.await, sample::take(&opened.file, size, self.pages).await) else {
            return;
        };
        let not = (*ours != theirs).then(|| DIFFERS.to_owned());
        self.join(opened, not);
    }

    /// Reports whether a block may be used, which is not the case if it is from an untrusted
    /// source.
    fn accept(&self, attempt: BlockAttempt, member: usize, part: Range<u64>) -> bool {
        let mut state = self.state();
        if state.members.get(member).is_none_or(|member| member.is_untrusted) {
            state.shares.forget(attempt);
            return false;
        }
        state.shares.done(attempt, part.end - part.start, Instant::now());
        state.given.set(part, member);
        true
    }

    /// Returns the reason to give up a source that ended before its size.
    fn short(&self, offset: u64, data: &Bytes) -> String {
        format!("it ends at byte {} of {}", offset + data.len() as u64, self.stat.size)
    }

    fn give_up(&self, attempt: BlockAttempt, member: usize, why: String) {
        self.state().shares.forget(attempt);
        self.leave(member, why);
    }

    fn leave(&self, member: usize, why: String) {
        let mut state = self.state();
        state.shares.leave(member);
        if let Some(member) = state.members.get_mut(member) {
            member.failed.get_or_insert(why);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

fn nobody(url: &Url, state: &MultiSourceState) -> CopyError {
    let reason = |member: &SourceServer| {
        let why = member.failed.as_deref().unwrap_or("given up");
        format!("{}: {why}", member.at)
    };
    CopyError::NoSource { place: url.to_string(), reasons: state.members.iter().map(reason).collect() }
}

/// Searches for sources that appear later.
async fn search(sources: Weak<MultiSourceParts>) {
    loop {
        tokio::time::sleep(SEARCH_TIME).await;
        let Some(inner) = sources.upgrade() else { return };
        if inner.state().shares.present() >= inner.most {
            continue;
        }
        let places = if inner.mirrors.is_empty() {
            find(&inner.client, &inner.url).await.unwrap_or_default()
        } else {
            inner.mirrors.clone()
        };
        for place in places {
            let known = inner.state().members.iter().any(|member| member.at == place.authority());
            if known {
                continue;
            }
            if let Ok(opened) = open(&inner.client, &place, &inner.with).await {
                inner.join_later(opened).await;
            }
        }
    }
}

/// Returns the locations of the file, its own host last, because a manager would only redirect to
/// one of the others.
async fn find(client: &Client, url: &Url) -> Result<Vec<Url>, Error> {
    let files = client.file_system(url);
    let locations = files.locate_deep(&url.path, LocateOptions::PREFNAME).await?;
    let at = |location: &crate::answers::ReplicaLocation| files.beside(location).url().at(url.path.clone());
    let mut places: Vec<Url> = locations.iter().filter(|location| !location.pending).map(at).collect();
    if places.is_empty() {
        places.push(url.clone());
    }
    Ok(places)
}

async fn open(client: &Client, url: &Url, with: &OpenWith) -> Result<OpenSource, Error> {
    let file = client.open(url, with).await?;
    let stat = file.known_stat().await?;
    Ok(OpenSource { file, stat })
}

/// The result of the comparison of samples.
struct Compared {
    agree: Vec<OpenSource>,
    /// The sources that differ, each with the reason.
    differ: Vec<(OpenSource, String)>,
    /// The sample of the sources that agree, if there were several.
    sample: Option<Sample>,
}

/// Compares the samples of the sources. Slow sources are omitted.
async fn compare(opened: Vec<OpenSource>, size: u64, pages: bool) -> Compared {
    if opened.len() < 2 {
        return Compared { agree: opened, differ: Vec::new(), sample: None };
    }
    let mut taking = JoinSet::new();
    for (number, one) in opened.iter().enumerate() {
        let file = one.file.clone();
        taking.spawn(async move { (number, sample::take(&file, size, pages).await) });
    }
    let mut told: Vec<Option<Result<Sample, Error>>> = opened.iter().map(|_| None).collect();
    let mut until = None;
    loop {
        let next = async {
            match until {
                Some(until) => tokio::time::timeout_at(until, taking.join_next()).await.ok().flatten(),
                None => taking.join_next().await,
            }
        };
        let Some(ended) = next.await else { break };
        let Ok((number, taken)) = ended else { continue };
        if taken.is_ok() {
            until.get_or_insert_with(|| Instant::now() + OTHERS_TIME);
        }
        if let Some(place) = told.get_mut(number) {
            *place = Some(taken);
        }
    }
    let samples: Vec<&Sample> = told.iter().flatten().filter_map(|taken| taken.as_ref().ok()).collect();
    let sample =
        most(&samples, |a, b| a == b).and_then(|index| samples.get(index)).map(|sample| (*sample).clone());
    let mut compared = Compared { agree: Vec::new(), differ: Vec::new(), sample };
    for (one, told) in opened.into_iter().zip(told) {
        match told {
            Some(Ok(told)) if Some(&told) == compared.sample.as_ref() => compared.agree.push(one),
            Some(Ok(_)) => compared.differ.push((one, DIFFERS.to_owned())),
            Some(Err(error)) => compared.differ.push((one, error.to_string())),
            None => {}
        }
    }
    compared
}

/// Opens the file at all places at once, with a short wait for slow ones.
async fn open_all(
    client: &Client,
    places: Vec<Url>,
    with: &OpenWith,
    most: usize,
) -> Result<Vec<OpenSource>, CopyError> {
    let mut opening = JoinSet::new();
    for (number, place) in places.into_iter().take(most).enumerate() {
        let (client, with) = (client.clone(), with.clone());
        opening.spawn(async move { (number, open(&client, &place, &with).await) });
    }
    let (mut opened, mut failed) = (Vec::new(), None);
    let mut until = None;
    loop {
        let next = async {
            match until {
                Some(until) => tokio::time::timeout_at(until, opening.join_next()).await.ok().flatten(),
                None => opening.join_next().await,
            }
        };
        match next.await {
            Some(Ok((number, Ok(one)))) => {
                until.get_or_insert_with(|| Instant::now() + OTHERS_TIME);
                opened.push((number, one));
            }
            Some(Ok((_, Err(error)))) => failed = Some(error),
            Some(Err(_)) => {}
            None => break,
        }
    }
    opened.sort_by_key(|(number, _)| *number);
    match failed {
        Some(error) if opened.is_empty() => Err(CopyError::source(error)),
        _ => Ok(opened.into_iter().map(|(_, opened)| opened).collect()),
    }
}
