//! [`ProxyFiles`]: the name space of origins.
//!
//! Each operation is a task that makes requests with the client and answers late, so nothing blocks
//! and no request has a thread. Authorization comes before this file system, so nothing goes out
//! for an operation that is refused.

use crate::address::RemoteAddress;
use crate::cache_commands;
use crate::cache_orders::CacheOrders;
use crate::cached_origin::{self, FileCache};
use crate::changes::check_exists;
use crate::connections::file_connection_user;
use crate::direct_reads::{self, DirectReads};
use crate::late_answers::for_caller;
use crate::limits::Requester;
use crate::listing;
use crate::open_file::{CacheUse, ProxiedFile};
use crate::open_options::open_options;
use crate::origin::{OriginServer, RequestKind};
use crate::origin_names::OriginNameSpace;
use crate::origins::OriginTable;
use crate::personas::{Persona, Personas};
use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use crate::settings::ProxyConfig;
use crate::status::{brief_stat, file_stat, space_figures};
use crate::threads::ProxyThreads;
use base::{Cgi, ClientHost, Error, ErrorKind, LogicalPath};
use cache::{CacheKey, MemoryCacheStatus};
use client::xroot::codes::QueryType;
use client::{Client, SpaceInfo, Url};
use std::future::Future;
use std::sync::Arc;
use vfs::{
    Answer, Caller, FileSystem, LocateOptions, OpenRequest, Opened, Operation, PrepareRequest, ReplyTo,
    Started, Target, TargetList, Value,
};

/// Maximum number of paths of one status request. They are queried one after the other.
const STAT_PATHS_MAX: usize = 1024;

/// Ids of prepare requests.
pub trait PrepareIds: Send + Sync {
    /// Returns a new id for a request of this client.
    fn issue(&self, caller: &Caller) -> String;
    /// Reports whether this server has issued an id.
    fn has_issued(&self, id: &[u8]) -> bool;
}

/// The name space of origins.
pub struct ProxyFiles {
    pub(crate) config: Arc<ProxyConfig>,
    pub(crate) origins: OriginTable,
    /// The identities of clients, if requests have them.
    personas: Option<Personas>,
    prepare_ids: Box<dyn PrepareIds>,
    /// The cache, if there is one.
    pub(crate) cache: Option<FileCache>,
    /// Redirects to files of the cache, if clients on this machine may read them directly.
    direct: Option<DirectReads>,
    threads: ProxyThreads,
}

/// A path at its origin.
pub(crate) struct PathAtOrigin {
    origin: Arc<OriginServer>,
    /// The URL, with the user of the connection for files.
    url: Url,
    pub(crate) read_only: bool,
    requester: Requester,
    /// The identity with which requests are made; `None` for that of the proxy.
    persona: Option<Arc<Persona>>,
    /// Its name in the cache.
    pub(crate) cached: Option<LogicalPath>,
}

impl PathAtOrigin {
    /// Returns the path at the origin.
    pub(crate) fn path(&self) -> &str {
        self.url.path.as_str()
    }

    /// Reports whether the origin is an object store.
    pub(crate) fn is_in_object_store(&self) -> bool {
        self.origin.is_object_store()
    }

    /// Reports whether both paths are at one origin.
    pub(crate) fn is_same_origin(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin, &other.origin)
    }

    /// Makes a quick request in the name space of the origin, with the opaque text of the request of the
    /// client.
    pub(crate) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(OriginNameSpace) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        self.run_as(RequestKind::Quick, work).await
    }

    /// Makes a request that can occupy the origin for long.
    pub(crate) async fn run_slowly<T>(
        &self,
        work: impl AsyncFnOnce(OriginNameSpace) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        self.run_as(RequestKind::Slow, work).await
    }

    async fn run_as<T>(
        &self,
        kind: RequestKind,
        work: impl AsyncFnOnce(OriginNameSpace) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        let request =
            async |client: Client, user| work(OriginNameSpace::new(&client, &self.url_of(kind, user))).await;
        self.origin.run((kind, self.requester), request).await
    }

    /// Makes a request that changes the name space of the origin.
    pub(crate) async fn change<T>(
        &self,
        work: impl AsyncFnOnce(OriginNameSpace) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        let kind = RequestKind::Quick;
        let request =
            async |client: Client, user| work(OriginNameSpace::new(&client, &self.url_of(kind, user))).await;
        self.origin.change((kind, self.requester), request).await
    }

    /// Returns the URL on the connection of a user, or on one with the identity of the client.
    fn url_of(&self, kind: RequestKind, user: Option<String>) -> Url {
        let user = match &self.persona {
            Some(persona) if kind == RequestKind::Slow => Some(persona.user_of_slow_requests()),
            Some(persona) if kind == RequestKind::Quick => Some(persona.user_of_quick_requests()),
            Some(_) => self.url.user.clone(),
            None => user.or_else(|| self.url.user.clone()),
        };
        Url { user, ..self.url.clone() }
    }
}

impl ProxyFiles {
    /// Starts the threads of a proxy.
    ///
    /// # Errors
    /// The error of the system, if there are no threads.
    pub fn new(mut config: ProxyConfig, prepare_ids: Box<dyn PrepareIds>) -> std::io::Result<Arc<Self>> {
        let threads = ProxyThreads::start()?;
        let direct = DirectReads::start(&mut config);
        let cache = FileCache::start(&config, threads.handle())?;
        let config = Arc::new(config);
        let origins = OriginTable::new(config.clone(), threads.handle().clone());
        let personas = config.identities.clone().map(Personas::new);
        Ok(Arc::new(Self { config, origins, personas, prepare_ids, cache, direct, threads }))
    }

    /// Returns the disk cache, if there is one.
    pub fn cache_orders(&self) -> Option<CacheOrders<'_>> {
        let (config, cache) = (self.config.cache.as_ref()?, self.cache.as_ref()?.disk()?);
        Some(CacheOrders::new(cache, &config.directory, self.threads.handle()))
    }

    /// Passes the ends of periods in which clients had a file of the disk cache open to an observer. Has no effect
    /// without a disk cache.
    pub fn observe_cache(&self, observer: Arc<dyn cache::CacheObserver>) {
        if let Some(cache) = self.cache.as_ref().and_then(FileCache::disk) {
            cache.observe(observer);
        }
    }

    /// Waits until the use of all files of the disk cache is over and recorded, at most for this time.
    pub async fn cache_closed(&self, limit: std::time::Duration) {
        if let Some(cache) = self.cache.as_ref().and_then(FileCache::disk) {
            cache.closed(limit).await;
        }
    }

    /// Returns the state of the memory cache, if there is one.
    pub fn memory_cache_status(&self) -> Option<MemoryCacheStatus> {
        Some(self.cache.as_ref()?.memory()?.status())
    }

    /// Returns the threads of the proxy.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.threads.handle()
    }

    /// Returns the path at its origin.
    pub(crate) fn at(
        &self,
        caller: &Caller,
        target: &Target,
        participle: &str,
        reply: &ReplyTo,
    ) -> Result<PathAtOrigin, Error> {
        let address = self.config.address(caller, target, participle)?;
        let persona = self.personas.as_ref().map(|personas| personas.of(caller)).transpose()?;
        let requester = Requester { owner: reply.owner(), host: ClientHost::from(caller.identity.address) };
        let origin = self.origins.of(&address, requester.host)?;
        let export = self.config.export(&target.path, participle)?;
        let RemoteAddress { mut url, is_forwarded } = address;
        let cached = self.cache.as_ref().and_then(|_| cached_origin::cached_path(&url, is_forwarded));
        let of_proxy = || file_connection_user(reply.owner());
        let of_client = |persona: &Arc<Persona>| persona.user_of_files(reply.owner());
        url.user = Some(persona.as_ref().map_or_else(of_proxy, of_client));
        let read_only = export.read_only || export.force_read_only;
        Ok(PathAtOrigin { origin, url, read_only, requester, persona, cached })
    }

    /// Starts a request about a path, and tells the client when the answer takes long.
    pub(crate) fn ask<F>(
        &self,
        who: (&Arc<Caller>, &ReplyTo),
        what: (Target, &'static str, &'static str),
        work: impl FnOnce(PathAtOrigin) -> F,
    ) -> Started
    where
        F: Future<Output = Result<Value, RequestFailure>> + Send + 'static,
    {
        let (_, reply) = who;
        self.begin(who, what, Some(reply.clone()), |at| {
            let work = work(at);
            async move { work.await.map(Answer::Value) }
        })
    }

    /// Starts a request about a path. It fails at once if the origin does not answer.
    fn begin<F>(
        &self,
        (caller, reply): (&Arc<Caller>, &ReplyTo),
        (target, participle, verb): (Target, &'static str, &'static str),
        notices: Option<ReplyTo>,
        work: impl FnOnce(PathAtOrigin) -> F,
    ) -> Started
    where
        F: Future<Output = Result<Answer, RequestFailure>> + Send + 'static,
    {
        let at = match self.at(caller, &target, participle, reply) {
            Ok(at) => at,
            Err(error) => return Started::Done(Answer::Error(error)),
        };
        let home = self.config.in_cluster.then(|| at.origin.home.clone());
        let path = target.path;
        let to_error = move |failure: RequestFailure| {
            failure.to_error_of_name(verb, &path, home.as_ref().map(|home| home.authority()))
        };
        if let Some(reason) = at.origin.home.failure() {
            return Started::Done(Answer::Error(to_error(RequestFailure::NotAnswering(reason))));
        }
        let (later, caller, work) = (reply.defer(), caller.clone(), work(at));
        self.threads.handle().spawn(async move {
            let result = for_caller(&caller, notices, work).await;
            later.send(result.unwrap_or_else(|failure| Answer::Error(to_error(failure))));
        });
        Started::Pending
    }

    fn open(
        &self,
        caller: &Arc<Caller>,
        target: Target,
        mut request: OpenRequest,
        reply: &ReplyTo,
    ) -> Started {
        let refuse = |kind, text: String| Started::Done(Answer::error(kind, text));
        if request.duplicate_of.is_some() || request.same_file_system_as.is_some() {
            return refuse(ErrorKind::Unsupported, "a proxy cannot clone files".to_owned());
        }
        let export = match self.config.export(&target.path, "Opening") {
            Ok(export) => export,
            Err(error) => return Started::Done(Answer::Error(error)),
        };
        // Before an export for reading turns a writer into a reader.
        let direct =
            self.direct.clone().zip(direct_reads::reader((caller, reply.owner()), &target, &request));
        let mut writes = request.write || request.append || request.new || request.delete;
        if writes && export.force_read_only {
            writes = false;
            request = OpenRequest { stat: request.stat, refresh: request.refresh, ..OpenRequest::default() };
        }
        if writes && let Err(error) = self.config.check_writable(&target.path, "Opening", "open") {
            return Started::Done(Answer::Error(error));
        }
        // The authorization leaves the opens of destinations to the grants of their clients.
        if copies_between_servers(&target.cgi, writes) {
            let text = format!("Unable to open {}; tpc not supported", target.path.text());
            return refuse(ErrorKind::Unsupported, text);
        }
        let (path, caller_of_file, runtime) =
            (target.path.clone(), caller.clone(), self.threads.handle().clone());
        let cache = self.cache.clone();
        let parent = match self.required_parent(caller, &target, &request, reply) {
            Ok(parent) => parent,
            Err(error) => return Started::Done(Answer::Error(error)),
        };
        // A late answer cannot carry a handle: the client would open the file again, and find the file
        // that it has created.
        self.begin((caller, reply), (target, "Opening", "open"), None, move |at| async move {
            check_exists(parent).await?;
            let with = open_options(&request, writes);
            let change = cache.as_ref().zip(at.cached.as_ref()).filter(|_| writes);
            let change = change.map(|(cache, path)| cache.change_content(path));
            // Before the origin is asked, so that a change meanwhile is noticed.
            let key = at.cached.as_ref().filter(|_| !writes).and_then(CacheKey::new);
            let ticket = cache.as_ref().zip(key.as_ref()).and_then(|(cache, key)| cache.ticket(key));
            let opening = RemoteFile::open(at.origin, at.url, with, at.requester);
            let (remote, changes) = cached_origin::make_change(change, opening).await?;
            let (remote, mut used) = (Arc::new(remote), CacheUse { reader: None, changes });
            if let (Some(cache), Some(key), Some(ticket)) = (&cache, &key, ticket)
                && remote.has_version()
            {
                used.reader = cache.open((key, ticket), &remote, at.requester.owner).await;
            }
            if let (Some((direct, client)), Some(reader)) = (direct, &used.reader)
                && let Some(redirect) = direct.redirect(reader, client).await
            {
                return Ok(Answer::Redirect(redirect));
            }
            let stat = match request.stat {
                true => Some(file_stat(&remote.known_stat().await?, at.read_only)),
                false => None,
            };
            let context = (caller_of_file, at.persona, runtime);
            let file = ProxiedFile::new(path, remote, used, (writes, at.read_only), context);
            Ok(Answer::Value(Value::Opened(Opened { file: Arc::new(file), stat })))
        })
    }

    /// Returns the directory that must exist before a file is created. The origin creates missing
    /// directories, but not every client may.
    fn required_parent(
        &self,
        caller: &Caller,
        target: &Target,
        request: &OpenRequest,
        reply: &ReplyTo,
    ) -> Result<Option<PathAtOrigin>, Error> {
        if !request.new && !request.delete {
            return Ok(None);
        }
        // In an object store, a directory is there with its first object. So only one that the client may not create
        // has to be there before.
        let creates_directories =
            request.make_path || self.at(caller, target, "Opening", reply)?.is_in_object_store();
        let parent = if creates_directories { request.existing_parent.clone() } else { target.path.parent() };
        let Some(path) = parent.filter(|parent| !parent.is_root()) else { return Ok(None) };
        // The origin decides by the same credentials as about the file.
        let target = Target { path, cgi: target.cgi.clone() };
        // A directory above all exports exists.
        if self.config.export(&target.path, "Opening").is_err() {
            return Ok(None);
        }
        self.at(caller, &target, "Opening", reply).map(Some)
    }

    fn stat_many(&self, caller: &Arc<Caller>, targets: &TargetList, reply: &ReplyTo) -> Started {
        let mut places = Vec::new();
        for target in targets.cursor() {
            match target.and_then(|target| self.at(caller, &target, "Stating", reply)) {
                Ok(at) => places.push(at),
                Err(error) => return Started::Done(Answer::Error(error)),
            }
            if places.len() > STAT_PATHS_MAX {
                let text = format!("a proxy takes at most {STAT_PATHS_MAX} paths in one request");
                return Started::Done(Answer::error(ErrorKind::ArgTooLong, text));
            }
        }
        self.ask((caller, reply), (targets.first().clone(), "Stating", "locate"), move |_| async move {
            let mut stats = Vec::with_capacity(places.len());
            for at in places {
                stats.push(brief_stat(&at.run(async |files| files.stat(at.path()).await).await?));
            }
            Ok(Value::BriefStats(stats))
        })
    }

    /// Returns the address of this proxy for a file that exists.
    fn locate(
        &self,
        caller: &Arc<Caller>,
        target: Option<Target>,
        options: LocateOptions,
        reply: &ReplyTo,
    ) -> Started {
        let (address, name) = &self.config.own_address;
        let own = if options.prefer_name { name } else { address }.clone();
        let Some(target) = target else { return text(format!("Sw{own}")) };
        self.ask((caller, reply), (target, "Locating", "locate"), move |at| async move {
            at.run(async |files| files.stat(at.path()).await).await?;
            Ok(Value::Text(format!("S{}{own}", if at.read_only { 'r' } else { 'w' }).into_bytes()))
        })
    }

    fn checksum(&self, caller: &Arc<Caller>, target: Target, reply: &ReplyTo) -> Started {
        let wanted = target.cgi.text("cks.type").map(str::to_owned);
        let offered = &self.config.checksums;
        let wanted = wanted.or_else(|| offered.first().cloned());
        if let Some(wanted) =
            wanted.as_ref().filter(|wanted| !offered.is_empty() && !offered.contains(*wanted))
        {
            let text = format!("{wanted} checksum not supported.");
            return Started::Done(Answer::error(ErrorKind::Unsupported, text));
        }
        self.ask((caller, reply), (target, "Checksumming", "checksum"), move |at| async move {
            let sum = at.run_slowly(async |files| files.checksum(at.path(), wanted.as_deref()).await).await?;
            Ok(Value::Checksum { algorithm: sum.kind, hex: sum.value })
        })
    }

    fn space(
        &self,
        caller: &Arc<Caller>,
        target: Target,
        reply: &ReplyTo,
        value: fn(&SpaceInfo) -> Value,
    ) -> Started {
        self.ask((caller, reply), (target, "Stating", "statfs"), move |at| async move {
            Ok(value(&at.run_slowly(async |files| files.space(at.path()).await).await?))
        })
    }

    /// Accepts a request for files that a disk cache would fetch. There is nothing to fetch them to.
    fn prepare(&self, caller: &Caller, request: &PrepareRequest, targets: &TargetList) -> Started {
        for target in targets.cursor() {
            let exported = target.and_then(|target| self.config.export(&target.path, "Preparing").map(drop));
            if let Err(error) = exported {
                return Started::Done(Answer::Error(error));
            }
        }
        if request.stage { text(self.prepare_ids.issue(caller)) } else { Started::Done(Answer::DONE) }
    }

    fn own_prepare(&self, id: &[u8], answer: Answer) -> Started {
        Started::Done(match self.prepare_ids.has_issued(id) {
            true => answer,
            false => Answer::error(ErrorKind::ArgInvalid, "Prepare requestid owned by an unknown server"),
        })
    }
}

impl FileSystem for ProxyFiles {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match operation {
            Operation::Open(target, request) => self.open(caller, target, *request, reply),
            Operation::Stat(target) => {
                self.ask((caller, reply), (target, "Stating", "locate"), move |at| async move {
                    let stat = at.run(async |files| files.stat(at.path()).await).await?;
                    Ok(Value::Stat(file_stat(&stat, at.read_only)))
                })
            }
            Operation::StatSpace(target) => {
                self.space(caller, target, reply, |space| Value::Space(space_figures(space)))
            }
            Operation::QuerySpace(target) => self.space(caller, target, reply, |space| {
                Value::Text(space_figures(space).query_text(&space.name).into_bytes())
            }),
            Operation::StatMany(targets) => self.stat_many(caller, &targets, reply),
            Operation::List(target, detail) => self.list(caller, target, detail, reply),
            Operation::Locate(target, options) => self.locate(caller, target, options, reply),
            Operation::Checksum(target) => self.checksum(caller, target, reply),
            Operation::QueryAttributes(target) => {
                self.ask((caller, reply), (target, "Querying", "statxa"), move |at| async move {
                    let argument = at.url.target().text().into_owned();
                    let query = async |files: OriginNameSpace| files.query(QueryType::XATTR, &argument).await;
                    let found = at.run(query).await?;
                    let end = found.iter().position(|&byte| byte == 0).unwrap_or(found.len());
                    Ok(Value::Text(found.get(..end).unwrap_or_default().to_vec()))
                })
            }
            Operation::Prepare(request, targets) => self.prepare(caller, &request, &targets),
            Operation::CancelPrepare { id } => self.own_prepare(&id, Answer::DONE),
            Operation::QueryPrepare { id, .. } => {
                self.own_prepare(&id, Answer::Value(Value::Text(b"No information found.".to_vec())))
            }
            Operation::CancelChecksum(_) => Started::Done(Answer::DONE),
            Operation::MakeDirectory { .. }
            | Operation::RemoveDirectory(_)
            | Operation::Remove(_)
            | Operation::Rename { .. }
            | Operation::Truncate { .. } => self.change(caller, operation, reply),
            Operation::ChangeMode { target, .. } => unsupported("chmod", &target.path),
            Operation::Attributes(target, _) => unsupported("access attributes of", &target.path),
            Operation::ListMore(rest) => listing::more(rest),
            Operation::Cache(target, command) => {
                cache_commands::start(self, caller, (target, command), reply)
            }
            Operation::QueryOpaque { .. } | Operation::Tape(_) | Operation::IssueMacaroon(..) => {
                Started::Done(Answer::error(ErrorKind::Unsupported, "a proxy does not support it"))
            }
        }
    }
}

/// Reports whether an open belongs to a third-party copy. The files behind serve none: what is in front
/// of them removes this text from the opens that it has admitted.
fn copies_between_servers(cgi: &Cgi, writes: bool) -> bool {
    let has = |key| cgi.get(key).is_some_and(|value| !value.is_empty());
    has("tpc.key") || has("tpc.src") || (writes && cgi.has_prefix("tpc."))
}

fn unsupported(verb: &str, path: &LogicalPath) -> Started {
    let text = format!("Unable to {verb} {}; operation not supported", path.text());
    Started::Done(Answer::error(ErrorKind::Unsupported, text))
}

fn text(text: String) -> Started {
    Started::Done(Answer::Value(Value::Text(text.into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_with_a_key_of_a_copy_is_no_ordinary_open() {
        for (cgi, writes, is_copy) in [
            ("tpc.key=k&tpc.org=u.1@h", false, true),
            ("tpc.key=k&tpc.dst=h", false, true),
            ("tpc.src=h", false, true),
            ("tpc.stage=placement", true, true),
            ("tpc.stage=placement", false, false),
            ("tpc.key=&authz=x", false, false),
            ("", true, false),
        ] {
            assert_eq!(copies_between_servers(&Cgi::new(cgi.as_bytes()), writes), is_copy, "{cgi}");
        }
    }
}
