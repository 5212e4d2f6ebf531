//! [`RemoteFile`]: a file at an origin. The disk cache uses it as its source.

use crate::limits::Requester;
use crate::near_ranges;
use crate::origin::{OriginServer, OwnConnection, RequestKind};
use crate::origin_file::{OriginFile, is_http};
use crate::place::{OriginPlace, RequestFailure};
use crate::upload::FileUpload;
use client::xroot::flags::{OpenOptions, StatFlags};
use client::{Bytes, Client, OpenWith, StatInfo, Url, join_bounded};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file at an origin. Dropping it closes it without a check of the reply.
pub(crate) struct RemoteFile {
    origin: Arc<OriginServer>,
    file: OriginFile,
    /// The server at which the file was open last. It is kept, because the table of the origin may be full.
    place: Mutex<Arc<OriginPlace>>,
    requester: Requester,
    /// The connection of a file that persists on close.
    own: Option<OwnConnection>,
    /// The upload, if the file is written and the origin speaks HTTP.
    upload: Option<FileUpload>,
    /// A change has failed, so that a file that persists on close does not persist.
    has_failed: AtomicBool,
}

impl RemoteFile {
    /// Opens the file of `url` at an origin. If the caller leaves, the open ends, and the client closes
    /// the file when the origin answers late.
    pub(crate) async fn open(
        origin: Arc<OriginServer>,
        url: Url,
        mut with: OpenWith,
        requester: Requester,
    ) -> Result<Self, RequestFailure> {
        let persists = with.options.intersects(OpenOptions::POSC);
        // A file that is written to a server that speaks HTTP appears at the close anyway.
        let persists = persists && !is_http(&url);
        let own = if persists { origin.own_connection() } else { None };
        let mut url = url;
        if let Some(own) = &own {
            url = own.url(url, requester);
        } else if persists {
            with.options = with.options.without(OpenOptions::POSC);
            let path = url.path.as_str();
            tracing::info!(path, "too many copies are written at the origin: a part of this one would stay");
        }
        let open = async |client: Client, _| {
            let client = own.as_ref().map_or_else(|| client.clone(), |own| own.client(&client));
            OriginFile::open(&client, &url, &with).await
        };
        let request = (RequestKind::Open, requester);
        let file = match with.is_writable() {
            true => origin.change(request, open).await?,
            false => origin.run(request, open).await?,
        };
        let upload = match &file {
            OriginFile::New(new) => Some(Box::pin(FileUpload::begin(new.clone(), &origin, requester)).await?),
            _ => None,
        };
        let place = Mutex::new(origin.place(&file.location(), file.url()));
        Ok(Self { origin, file, place, requester, own, upload, has_failed: AtomicBool::new(false) })
    }

    /// Reports whether nothing appears at the origin before the file is closed.
    pub(crate) const fn is_upload(&self) -> bool {
        self.upload.is_some()
    }

    /// Reports whether the origin has said that the file persists on close.
    pub(crate) fn persists(&self) -> bool {
        let is_pending = |stat: StatInfo| stat.flags.intersects(StatFlags::POSCPEND);
        self.upload.is_some() || self.own.is_some() && self.file.stat_at_open().is_some_and(is_pending)
    }

    /// Returns the status in the reply to the open, or requests it.
    pub(crate) async fn known_stat(&self) -> Result<StatInfo, RequestFailure> {
        match self.file.stat_at_open() {
            Some(stat) => Ok(stat),
            None => self.stat().await,
        }
    }

    /// Reports whether a change of the file can be noticed, so that its data may be kept.
    pub(crate) fn has_version(&self) -> bool {
        self.file.has_version()
    }

    /// Makes a request about the file in its turn.
    pub(crate) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(OriginFile) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        if self.place().has_failed() {
            self.file.leave_location();
        }
        let turn = self.place().data.enter(self.requester).await?;
        let file = self.file.paced(turn.pacing());
        self.at_current_place(pin!(work(file))).await
    }

    /// Returns the server at which the file is open now.
    fn place(&self) -> Arc<OriginPlace> {
        let location = self.file.location();
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.authority() != location.authority() {
            *place = self.origin.place(&location, self.file.url());
        }
        place.clone()
    }

    /// Returns the name of the server at which the file is open now.
    pub(crate) fn server(&self) -> String {
        self.file.location().authority()
    }

    /// Makes a request under the breaker of the server at which the file is open. A file that has lost
    /// its server may move to another one meanwhile, under no breaker.
    async fn at_current_place<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = Result<T, client::Error>>>,
    ) -> Result<T, RequestFailure> {
        let mut reopens = self.file.reopens();
        let mut waiting = None;
        loop {
            reopens.mark_unchanged();
            let (place, is_moving) = (self.place(), self.file.is_moving());
            let request = async {
                if is_moving {
                    let result = work.as_mut().await;
                    self.place().note(&result);
                    return result.map_err(RequestFailure::Client);
                }
                place.run_again(&mut waiting, work.as_mut()).await
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
        if let Some(upload) = &self.upload {
            return Ok(status_of_new_object(upload.size()));
        }
        self.run(async |file| file.stat().await).await
    }

    /// Reads into all of `into` and returns the number of bytes. Fewer mean the end of the file,
    /// because a short reply is followed by another request. Page checksums are verified where the
    /// origin has them.
    pub(crate) async fn read_range(&self, offset: u64, into: &mut [u8]) -> Result<usize, RequestFailure> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let came = self.run(async |file| file.read_into(at, rest).await).await?;
            if came == 0 {
                break;
            }
            done += came;
        }
        Ok(done)
    }

    /// Reads a range as [`RemoteFile::read_range`] does.
    pub(crate) async fn read_bytes(&self, offset: u64, length: usize) -> Result<Bytes, RequestFailure> {
        let first = self.run(async |file| file.read(offset, length).await).await?;
        if first.is_empty() || first.len() >= length {
            return Ok(first);
        }
        let mut all = vec![0; length];
        let came = first.len();
        if let Some(place) = all.get_mut(..came) {
            place.copy_from_slice(&first);
        }
        let more =
            self.read_range(offset.saturating_add(came as u64), all.get_mut(came..).unwrap_or_default());
        let more = more.await?;
        all.truncate(came + more);
        Ok(all.into())
    }

    /// Reads ranges that lie within the file, in few requests.
    pub(crate) async fn read_ranges(
        self: &Arc<Self>,
        ranges: &[(u64, usize)],
    ) -> Result<Vec<Bytes>, RequestFailure> {
        if self.file.vectors().is_some() {
            let read = async |file: OriginFile| match file.vectors() {
                Some(file) => file.read_vector(ranges).await,
                None => Ok(Vec::new()),
            };
            return self.run(read).await;
        }
        let read = |range: near_ranges::JoinedRange| {
            let file = self.clone();
            // Boxed, because many wait for their turn.
            Box::pin(async move {
                let data = file.read_bytes(range.offset, range.length).await?;
                Ok::<_, RequestFailure>((range, data))
            })
        };
        let joined = join_bounded(near_ranges::join(ranges), read).await;
        let joined = joined.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(near_ranges::split(ranges, &joined))
    }

    /// Writes `data` at `offset`, with page checksums where the origin has them.
    pub(crate) async fn write(&self, offset: u64, data: Bytes) -> Result<(), RequestFailure> {
        let written = match &self.upload {
            Some(upload) => Box::pin(upload.write(self, offset, data)).await,
            None => self.run(async |file| file.write(offset, data).await).await,
        };
        written.map_err(|failure| self.change_failed(failure))
    }

    fn change_failed(&self, failure: RequestFailure) -> RequestFailure {
        self.has_failed.store(true, Ordering::Release);
        failure.of_change()
    }

    /// Writes all data to stable storage. One that is only being sent has none before it is closed.
    pub(crate) async fn sync(&self) -> Result<(), RequestFailure> {
        match &self.upload {
            Some(upload) if upload.has_failed() => Err(RequestFailure::Incomplete),
            Some(_) => Ok(()),
            None => self.run(async |file| file.sync().await).await,
        }
    }

    /// Sets the size.
    pub(crate) async fn truncate(&self, size: u64) -> Result<(), RequestFailure> {
        let changed = match &self.upload {
            Some(upload) => Box::pin(upload.truncate(size)).await,
            None => self.run(async |file| file.truncate(size).await).await,
        };
        changed.map_err(|failure| self.change_failed(failure))?;
        if size == 0 {
            // Nothing is missing in an empty file.
            self.has_failed.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Leaves a file whose client does not close it. One at an origin that speaks HTTP does not appear. One that persists on close is not closed at the origin,
    /// which removes it when its connection has ended.
    pub(crate) async fn abandon(&self) -> Result<(), RequestFailure> {
        if let Some(upload) = &self.upload {
            Box::pin(upload.abandon()).await;
            return Ok(());
        }
        let Some(own) = &self.own else { return self.close().await };
        own.end();
        Ok(())
    }

    /// Closes the file. After writes, only success means that the origin has it.
    pub(crate) async fn close(&self) -> Result<(), RequestFailure> {
        if let Some(upload) = &self.upload {
            return Box::pin(upload.close(self)).await.map_err(RequestFailure::of_change);
        }
        if let Some(own) = self.own.as_ref().filter(|_| self.has_failed.load(Ordering::Acquire)) {
            own.end();
            return Err(RequestFailure::Incomplete);
        }
        if !self.file.is_writable() && self.place().failure().is_some() {
            return Ok(());
        }
        // Without a turn, because a close makes room at the origin, and must not fail in a full queue.
        self.at_current_place(pin!(self.file.close())).await.map_err(RequestFailure::of_change)
    }
}

/// Returns the status of a file that has not appeared.
fn status_of_new_object(size: u64) -> StatInfo {
    let flags = StatFlags::READABLE.with(StatFlags::WRITABLE);
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let mtime = now.ok().and_then(|now| i64::try_from(now.as_secs()).ok()).unwrap_or_default();
    StatInfo { id: 0, size, flags, mtime, more: None }
}

#[cfg(test)]
#[path = "../../client/tests/support/mod.rs"]
mod support;

#[cfg(test)]
mod tests {
    use super::support::{Act, Asked, Fake, MANAGER, PLAIN, SERVER, ok, opened, send, silence};
    use super::*;
    use crate::address::tests::proxy;
    use crate::cached_origin::CachedOrigin;
    use crate::connections::file_connection_user;
    use crate::limits::{PERSISTING_MAX, PLACES_MAX};
    use crate::open_file::{CacheUse, ProxiedFile};
    use crate::origin::OriginDialer;
    use base::{ClientHost, Owner};
    use cache::CacheOrigin;
    use client::xroot::flags::OpenOptions;
    use client::xroot::reply::{self, Redirect};
    use client::xroot::{ErrorCode, RequestCode};
    use client::{Cause, ListingMemory};
    use tokio::runtime::Handle;
    use vfs::{Answer, Caller, FileOperation, Mailbox, OpenFile, ReplyTo, ReplyToken};

    const REQUESTER: Requester = Requester { owner: Owner(1), host: ClientHost::Unknown };

    fn origin(url: &Url) -> Arc<OriginServer> {
        let (config, listings) = (Arc::new(proxy(None, true)), ListingMemory::new(1000));
        OriginServer::new(url, OriginDialer::fixed(&config, Handle::current(), &listings))
    }

    async fn open(origin: &Arc<OriginServer>, url: &Url, options: OpenOptions) -> RemoteFile {
        let with = OpenWith::options(options);
        RemoteFile::open(origin.clone(), url.clone(), with, REQUESTER).await.unwrap()
    }

    #[tokio::test]
    async fn a_close_waits_for_no_turn() {
        let answer = |asked: &Asked| match asked.code() {
            RequestCode::OPEN => opened(asked, 1, 100),
            _ => ok(asked, b""),
        };
        let server = Fake::start(SERVER, answer).await;
        let url = server.url("a");
        let file = open(&origin(&url), &url, OpenOptions::UPDT).await;
        // This session has all of its turns.
        let lane = &file.place().data;
        let mut turns = Vec::new();
        loop {
            tokio::select! {
                biased;
                turn = lane.enter(REQUESTER) => turns.push(turn.unwrap()),
                () = std::future::ready(()) => break,
            }
        }
        file.close().await.unwrap();
        assert_eq!(server.count(RequestCode::CLOSE), 1);
    }

    #[tokio::test]
    async fn any_number_of_requests_of_the_cache_waits_for_a_turn() {
        let answer = |asked: &Asked| match asked.code() {
            RequestCode::OPEN => opened(asked, 1, 100),
            _ => ok(asked, b"7 1 16 1700000000\0"),
        };
        let server = Fake::start(SERVER, answer).await;
        let url = server.url("a");
        let file = open(&origin(&url), &url, OpenOptions::READ).await;
        let source = Arc::new(CachedOrigin::new(Arc::new(file)));
        let version =
            async |source: Arc<CachedOrigin>| source.version().await.is_ok_and(|found| found.size == 1);
        let requests: Vec<_> = (0..5000).map(|_| tokio::spawn(version(source.clone()))).collect();
        for request in requests {
            assert!(request.await.unwrap());
        }
        assert_eq!(server.count(RequestCode::STAT), 5000);
    }

    #[tokio::test]
    async fn a_request_in_the_queue_takes_little_memory() {
        let url = Url::parse("root://h//a").unwrap();
        let origin = origin(&url);
        let with = OpenWith::read();
        let stat = async |client: Client, _| client.file_system(&url).stat("/a").await;
        for bytes in [
            size_of_val(&RemoteFile::open(origin.clone(), url.clone(), with, REQUESTER)),
            size_of_val(&origin.run((RequestKind::Quick, REQUESTER), stat)),
        ] {
            assert!(bytes < 3072, "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_file_keeps_the_place_of_its_server() {
        let server = Fake::start(SERVER, |asked| opened(asked, 1, 100)).await;
        let address = server.address;
        let manager = Fake::start(MANAGER, move |asked| {
            let host = address.ip().to_string();
            send(|out| {
                let to = Redirect::to_host(host.as_bytes(), address.port());
                reply::redirect(out, asked.header.streamid, &to);
            })
        })
        .await;
        let url = manager.url("a");
        let origin = origin(&url);
        // The table is full of servers in use.
        let other = |number: usize| Url { host: format!("h{number}"), ..url.clone() };
        let mut used: Vec<_> = (0..PLACES_MAX).map(|number| origin.place(&other(number), &url)).collect();
        let file = open(&origin, &url, OpenOptions::READ).await;
        let place = file.place();
        assert_eq!(place.authority(), server.url("a").authority());
        assert!(Arc::ptr_eq(&place, &file.place()));
        // A server whose breaker is open is known without users too.
        let failed = used.remove(7);
        let cause = Cause::Unreachable("refused".to_owned());
        let error = client::Error::new("stat", "/a", cause).at(failed.authority(), &[]);
        failed.note(&Err::<(), _>(error));
        assert!(failed.has_failed());
        drop((used, failed));
        origin.place(&other(PLACES_MAX), &url);
        assert!(origin.place(&other(7), &url).has_failed());
    }

    /// Answers opens, and refuses writes at offset 9.
    fn written(asked: &Asked) -> Act {
        match asked.code() {
            RequestCode::OPEN => opened(asked, 1, 100),
            RequestCode::WRITE | RequestCode::PGWRITE if asked.header.body[4..12] == 9_u64.to_be_bytes() => {
                send(|out| reply::error(out, asked.header.streamid, ErrorCode::NO_SPACE, "full"))
            }
            _ => ok(asked, b""),
        }
    }

    /// Returns the connections of the opens, and whether they ask for persistence.
    fn opens(server: &Fake) -> Vec<(u32, bool)> {
        let asked = server.asked.lock().unwrap();
        let opens = asked.iter().filter(|asked| asked.code() == RequestCode::OPEN);
        let options = |asked: &Asked| u16::from_be_bytes([asked.header.body[2], asked.header.body[3]]);
        opens.map(|asked| (asked.connection, options(asked) & OpenOptions::POSC.0 != 0)).collect()
    }

    #[tokio::test]
    async fn a_file_that_persists_on_close_has_a_connection_of_its_own() {
        let server = Fake::start(PLAIN, written).await;
        let url = Url { user: Some(file_connection_user(REQUESTER.owner)), ..server.url("a") };
        let persists = OpenOptions::UPDT.with(OpenOptions::POSC);
        let origin = origin(&url);
        let plain = open(&origin, &url, OpenOptions::UPDT).await;
        let mut files = Vec::new();
        for _ in 0..=PERSISTING_MAX {
            files.push(open(&origin, &url, persists).await);
        }
        let seen = opens(&server);
        let own: std::collections::HashSet<_> = seen.iter().filter(|(_, persists)| *persists).collect();
        assert_eq!(own.len(), PERSISTING_MAX);
        let users: std::collections::HashSet<_> =
            files.iter().map(|file| file.file.url().user.clone()).collect();
        assert_eq!(users.len(), PERSISTING_MAX + 1, "no other file can continue one of them");
        // One more shares a connection, as a file that does not persist.
        assert_eq!((seen[0], seen.last().unwrap()), ((seen[0].0, false), &(seen[0].0, false)));
        // A file that is left behind is not closed, and makes room.
        files.remove(0).abandon().await.unwrap();
        assert_eq!(server.count(RequestCode::CLOSE), 0);
        files.push(open(&origin, &url, persists).await);
        assert!(opens(&server).last().unwrap().1);
        plain.abandon().await.unwrap();
        assert_eq!(server.count(RequestCode::CLOSE), 1, "nothing else closes it");
    }

    #[tokio::test]
    async fn a_file_persists_only_if_no_change_of_it_has_failed() {
        let server = Fake::start(PLAIN, written).await;
        let url = server.url("a");
        let origin = origin(&url);
        let persists = OpenOptions::UPDT.with(OpenOptions::POSC);
        let whole = open(&origin, &url, persists).await;
        whole.write(0, Bytes::from_static(b"x")).await.unwrap();
        whole.close().await.unwrap();
        assert_eq!(server.count(RequestCode::CLOSE), 1);
        let broken = open(&origin, &url, persists).await;
        broken.write(9, Bytes::from_static(b"x")).await.unwrap_err();
        assert!(matches!(broken.close().await, Err(RequestFailure::Incomplete)));
        drop(broken);
        assert_eq!(server.count(RequestCode::CLOSE), 1, "it would persist");
        // Nothing is missing after it was emptied.
        let emptied = open(&origin, &url, persists).await;
        emptied.write(9, Bytes::from_static(b"x")).await.unwrap_err();
        emptied.truncate(0).await.unwrap();
        emptied.close().await.unwrap();
        assert_eq!(server.count(RequestCode::CLOSE), 2);
    }

    /// Passes answers to the test.
    struct Post(std::sync::mpsc::Sender<Answer>);

    impl Mailbox for Post {
        fn deliver(&self, _: ReplyToken, answer: Answer) {
            self.0.send(answer).ok();
        }
    }

    /// Starts a write that is never answered, gives it up, and starts a truncation. Returns the first answer
    /// and, if the write has ended, the second one.
    async fn given_up(flags: u8, options: OpenOptions) -> (Answer, Option<Answer>) {
        let server = Fake::start(PLAIN, move |asked| match asked.code() {
            RequestCode::WRITE | RequestCode::PGWRITE => silence(),
            RequestCode::OPEN => {
                let stat = format!("1 0 {flags} 100\0");
                ok(asked, &[&[1, 0, 0, 0][..], &[0; 8], stat.as_bytes()].concat())
            }
            _ => ok(asked, b""),
        })
        .await;
        let url = server.url("a");
        let remote = Arc::new(open(&origin(&url), &url, options).await);
        let names = base::LoginNames { user: "u", host: "h", ..base::LoginNames::default() };
        let caller = Arc::new(Caller::new(base::Identity::new(&names, 7, None, "host"), true, false));
        let path = base::LogicalPath::parse(b"/a").unwrap();
        let context = (caller, None, Handle::current());
        let file = ProxiedFile::new(path, remote, CacheUse::default(), (true, false), context);
        let (send, answers) = std::sync::mpsc::channel();
        let reply = ReplyTo::new(Arc::new(Post(send)), ReplyToken { owner: 1, call: 1 });
        let answer = || {
            let patience = std::time::Duration::from_secs(60);
            tokio::task::block_in_place(|| answers.recv_timeout(patience)).unwrap()
        };
        file.start(FileOperation::Write { buffer: vec![1], offset: 0, checkpoint: false }, &reply);
        file.give_up();
        let truncation = FileOperation::Truncate { size: 0, checkpoint: false };
        if !file_persists(flags, options) {
            file.start(truncation, &reply);
            return (answer(), None);
        }
        let first = answer();
        file.start(truncation, &reply);
        (first, Some(answer()))
    }

    fn file_persists(flags: u8, options: OpenOptions) -> bool {
        flags & 64 != 0 && options.intersects(OpenOptions::POSC)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn operations_that_are_given_up_end_without_the_origin() {
        let persists = OpenOptions::UPDT.with(OpenOptions::POSC);
        let (written, emptied) = given_up(112, persists).await;
        assert!(matches!(written, Answer::Error(error) if error.kind == base::ErrorKind::Cancelled));
        assert!(matches!(emptied, Some(Answer::Value(_))), "later operations are made");
        // The origin may make the change after the file was emptied, and keep it.
        for (flags, options) in [(48, persists), (112, OpenOptions::UPDT)] {
            let (first, _) = given_up(flags, options).await;
            assert!(matches!(first, Answer::Value(_)), "{flags}: the write still waits");
        }
    }
}
