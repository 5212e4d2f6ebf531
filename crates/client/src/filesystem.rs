//! [`FileSystem`]: operations on paths of a server, or of the cluster behind it.

use std::time::Duration;

use base::bytes_of;
use rawclient::{Encoded, ServerInfo};
use wire::xroot::codes::QueryType;
use wire::xroot::flags::{LocateOptions, PrepareOptions, PrepareOptionsX, StatOptions, StatWants};
use wire::xroot::request::{Locate, Ping, Prepare, Query, Request, Set, Stat, Statx};
use wire::xroot::{ErrorCode, FileHandle};

use crate::answers::{
    self, Attribute, FileChecksum, RemoteEntry, ReplicaLocation, SpaceInfo, StatInfo, VfsInfo, line,
};
use crate::attributes::{AttributeOwner, NamedValue};
use crate::channel::{BodyLimit, ReplyContent};
use crate::checksums::ChecksumQuery;
use crate::client::Client;
use crate::entries::Entries;
use crate::failure::{Cause, Error};
use crate::http::HttpFiles;
use crate::listings::ListingRequest;
use crate::path::{NameError, RemotePath, RequestTarget};
use crate::request_loop::Repeat;
use crate::route::{PathRequest, Route, RoutedReply};
use crate::url::Url;

/// The name space behind one URL. At an HTTP server it has the status, listings, checksums, removals and new
/// directories; other operations fail.
///
/// Paths are absolute and without cgi, which is that of the URL (see [`FileSystem::at`]). A path
/// that contains a `?` is refused, because servers would treat the rest as cgi. Every method
/// follows redirects, obeys waits, tries other servers where the protocol allows it, and ends
/// within the time for operations.
#[derive(Clone, Debug)]
pub struct FileSystem {
    pub(crate) client: Client,
    pub(crate) url: Url,
}

/// The optional parts of a listing.
#[derive(Clone, Default, Debug)]
pub struct ListWith {
    /// The status of each entry.
    pub stat: bool,
    /// The checksum of each entry that has one stored: of this type, or the server's first type
    /// (empty).
    pub checksum: Option<String>,
    /// Restricts the listing to entries that need no staging.
    pub online: bool,
}

impl Client {
    /// Returns the file system of the server of `url`. Only scheme, user, host, port and cgi are
    /// used.
    #[must_use]
    pub fn file_system(&self, url: &Url) -> FileSystem {
        FileSystem { client: self.clone(), url: url.clone() }
    }
}

impl FileSystem {
    /// Returns the URL for which it was created.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns its client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Parses a path as users write it, `path[?cgi]`. Returns this name space with that cgi added,
    /// and the path.
    ///
    /// # Errors
    /// [`Error`] if no request can carry the path.
    pub fn at(&self, text: &str) -> Result<(Self, RemotePath), Error> {
        let url = self.url.with_user_path(text).map_err(|why| Error::new("name", &self.url, why))?;
        let path = url.path.clone();
        Ok((Self { client: self.client.clone(), url: url.at(self.url.path.clone()) }, path))
    }

    /// Returns the files of the server, if it is one of HTTP.
    pub(crate) fn http(&self) -> Option<HttpFiles> {
        self.url.is_http().then(|| self.client.http_files(&self.url))
    }

    /// Returns this name space with the elements `key=value&…` added to its cgi.
    pub(crate) fn with_cgi(&self, elements: &str) -> Self {
        let mut fs = self.clone();
        fs.url.merge_cgi(elements);
        fs
    }

    /// Returns the URL of a path, which is not parsed.
    pub(crate) fn url_of(&self, name: &'static str, path: &str) -> Result<Url, Error> {
        match RemotePath::new(path) {
            Ok(path) => Ok(self.url.at(path)),
            Err(why) => Err(Error::new(name, &self.url, Cause::BadName { name: path.to_owned(), why })),
        }
    }

    pub(crate) async fn ask(
        &self,
        name: &'static str,
        path: &str,
        repeatable: bool,
        request: impl Fn(&Url, bool) -> Encoded + Sync,
    ) -> Result<RoutedReply, Error> {
        let repeat = Repeat::if_harmless(repeatable);
        let ask = PathRequest { name, repeat, slow: false, limit: BodyLimit::ANSWER, request: &request };
        let url = self.url_of(name, path)?;
        Route::new(&self.client, &url, self.client.end()).ask(&self.client, &ask).await
    }

    /// Makes a request about a path and decodes the reply.
    pub(crate) async fn get<T>(
        &self,
        name: &'static str,
        path: &str,
        request: impl Fn(&RequestTarget) -> Encoded + Sync,
        parse: impl Fn(&[u8]) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let arrived = self.ask(name, path, true, |url, _| request(&url.target())).await?;
        self.parsed(name, path, &arrived, parse)
    }

    pub(crate) fn parsed<T>(
        &self,
        name: &'static str,
        path: &str,
        arrived: &RoutedReply,
        parse: impl Fn(&[u8]) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let of = |cause| self.error(name, path, cause).at(arrived.channel.authority(), &[]);
        parse(&arrived.received.body).map_err(of)
    }

    pub(crate) fn error(&self, name: &'static str, path: &str, cause: Cause) -> Error {
        match self.url_of(name, path) {
            Ok(url) => Error::new(name, url, cause),
            Err(error) => error,
        }
    }

    /// Returns the status of a file or directory.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stat(&self, path: &str) -> Result<StatInfo, Error> {
        if let Some(files) = self.http() {
            return files.stat(path).await;
        }
        self.get("stat", path, |target| stat(target, StatOptions::NONE), StatInfo::parse).await
    }

    /// Returns the status, or `None` if the path does not exist.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn find(&self, path: &str) -> Result<Option<StatInfo>, Error> {
        match self.stat(path).await {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the status of the file systems that hold a path.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stat_vfs(&self, path: &str) -> Result<VfsInfo, Error> {
        self.get("statvfs", path, |target| stat(target, StatOptions::VFS), VfsInfo::parse).await
    }

    /// Returns the kinds of several paths at once: for each one, whether it is a directory and
    /// whether it is offline. Fails if one is missing.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stat_many(&self, paths: &[&str]) -> Result<Vec<(bool, bool)>, Error> {
        for path in paths {
            self.url_of("stat", path)?;
        }
        let list = self.lines_of("stat", paths)?;
        let list = bytes_of(&list);
        let request = |_: &RequestTarget| {
            let (options, fhandle) = (StatOptions::NONE, FileHandle::default());
            Encoded::new(&Request::Statx(Statx { options, fhandle, paths: &list }))
        };
        let kinds = |body: &[u8]| Ok(body.iter().map(|kind| (kind & 2 != 0, kind & 8 != 0)).collect());
        self.get("stat", paths.first().copied().unwrap_or("/"), request, kinds).await
    }

    /// Returns the entries of a directory, sorted by name. If the server does not include the
    /// requested status, the status of each entry is requested separately.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list(&self, path: &str, with: &ListWith) -> Result<Vec<RemoteEntry>, Error> {
        Ok(self.list_entries(path, with).await?.iter().collect())
    }

    /// Lists like [`FileSystem::list`]. The entries are kept as the server has sent them, because
    /// decoded ones take ten times the memory.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_entries(&self, path: &str, with: &ListWith) -> Result<Entries, Error> {
        let memory = self.client.listing_memory();
        let listings =
            ListingRequest { files: self, path, memory: &memory, is_one_server: false }.send(with).await?;
        let entries = Entries::merge(listings.into_iter().map(|listing| (0, listing)));
        entries.map_err(|cause| self.error("list", path, cause))
    }

    /// Returns this name space at one location.
    #[must_use]
    pub fn beside(&self, location: &ReplicaLocation) -> Self {
        let mut url = Url { others: Vec::new(), ..self.url.clone() };
        // A location that is not an address is used unchanged, and the request fails with its name.
        match Url::parse(&format!("root://{}", location.address)) {
            Ok(place) => (url.host, url.port) = (place.host, place.port),
            Err(_) => url.host.clone_from(&location.address),
        }
        Self { client: self.client.clone(), url }
    }

    /// Returns the locations of a path: servers, or managers that know more. `*` stands for all
    /// servers.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn locate(&self, path: &str, options: LocateOptions) -> Result<Vec<ReplicaLocation>, Error> {
        let request = |url: &Url, waited: bool| {
            let options = if waited { options.without(LocateOptions::REFRESH) } else { options };
            Encoded::new(&Request::Locate(Locate { options, path: url.target().as_bytes() }))
        };
        let arrived = self.ask("locate", path, true, request).await?;
        Ok(answers::locations(&arrived.received.body))
    }

    /// Returns the space behind a path; cgi `oss.cgroup=NAME` selects one by name.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn space(&self, path: &str) -> Result<SpaceInfo, Error> {
        self.get("space", path, |target| query(QueryType::SPACE, target), SpaceInfo::parse).await
    }

    /// Sends a query. `argument` has the form that the type of query requires, without NUL. Returns
    /// the reply as sent by the server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn query(&self, infotype: QueryType, argument: &str) -> Result<Vec<u8>, Error> {
        let (path, _) = argument.split_once('?').unwrap_or((argument, ""));
        let path = if path.starts_with('/') { path } else { "/" };
        if infotype == QueryType::CKSUM {
            let arrived = ChecksumQuery::of(self, path).send(|_| RequestTarget::new(argument)).await?;
            return Ok(arrived.received.body);
        }
        let argument = RequestTarget::new(argument);
        Ok(self.ask("query", path, true, |_, _| query(infotype, &argument)).await?.received.body)
    }

    /// Returns the checksum of a file, of this type or the server's first type. The server may
    /// compute it, which takes long. The timeout depends on the size of the file, or is
    /// `RequestTimeout` if that is set.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn checksum(&self, path: &str, kind: Option<&str>) -> Result<FileChecksum, Error> {
        if let Some(files) = self.http() {
            return files.checksum(path, kind).await;
        }
        let asked = kind.map_or_else(|| self.clone(), |kind| self.with_cgi(&format!("cks.type={kind}")));
        let arrived = ChecksumQuery::of(&asked, path).send(Url::target).await?;
        self.parsed("checksum", path, &arrived, FileChecksum::parse)
    }

    /// Returns values of the server's configuration, one for each key; `None` for a key that is
    /// unknown or not set.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn config(&self, keys: &[&str]) -> Result<Vec<Option<String>>, Error> {
        let answer = self.query(QueryType::CONFIG, &keys.join(" ")).await?;
        let answer = line(&answer);
        let mut lines = answer.lines();
        let value = |key: &&str| lines.next().filter(|value| value != key).map(str::to_owned);
        Ok(keys.iter().map(value).collect())
    }

    /// Prepares files (stages, refreshes, …) according to `options`, with priority 0 to 3. Returns
    /// the id of the request if there is one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn prepare(
        &self,
        paths: &[&str],
        options: PrepareOptions,
        priority: u8,
    ) -> Result<String, Error> {
        let paths = self.lines_of("prepare", paths)?;
        self.prepare_with("prepare", &paths, options, PrepareOptionsX::NONE, priority).await
    }

    /// Informs the server that files are no longer needed on disk.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn evict(&self, paths: &[&str]) -> Result<(), Error> {
        let evict = PrepareOptionsX::EVICT;
        let paths = self.lines_of("evict", paths)?;
        self.prepare_with("evict", &paths, PrepareOptions::NONE, evict, 0).await.map(|_| ())
    }

    /// Cancels a request of [`FileSystem::prepare`] by its id.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn cancel(&self, id: &str) -> Result<(), Error> {
        let (cancel, none) = (PrepareOptions::CANCEL, PrepareOptionsX::NONE);
        self.prepare_with("cancel", id, cancel, none, 0).await.map(|_| ())
    }

    /// Returns the status of a request of [`FileSystem::prepare`], in the server's words.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn prepare_status(&self, id: &str, paths: &[&str]) -> Result<String, Error> {
        let argument = self.lines_of("query", &[&[id], paths].concat())?;
        Ok(line(&self.query(QueryType::PREP, &argument).await?))
    }

    /// Joins paths for a request that has one on each line.
    fn lines_of(&self, name: &'static str, paths: &[&str]) -> Result<String, Error> {
        if let Some(path) = paths.iter().find(|path| path.contains('\n')) {
            let cause = Cause::BadName { name: (*path).to_owned(), why: NameError::LineEnd };
            return Err(Error::new(name, &self.url, cause));
        }
        Ok(paths.join("\n"))
    }

    async fn prepare_with(
        &self,
        name: &'static str,
        paths: &str,
        options: PrepareOptions,
        optionx: PrepareOptionsX,
        prty: u8,
    ) -> Result<String, Error> {
        let request = |_: &Url, _: bool| {
            let paths = bytes_of(paths);
            Encoded::new(&Request::Prepare(Prepare { options, prty, port: 0, optionx, paths: &paths }))
        };
        let first = paths.lines().next().filter(|path| path.starts_with('/')).unwrap_or("/");
        // Each path may have its own cgi. The request goes to the server of the first path.
        let first = first.split('?').next().unwrap_or_default();
        let arrived = self.ask(name, first, true, request).await?;
        Ok(line(&arrived.received.body))
    }

    /// Returns the values of extended attributes of a path, in the order of the names; `None` for a
    /// missing one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attribute_values(&self, path: &str, names: &[&str]) -> Result<Vec<NamedValue>, Error> {
        AttributeOwner::Path(self, path).values(names).await
    }

    /// Sets extended attributes of a path; with `only_new` only those that do not exist.
    ///
    /// # Errors
    /// [`Error`] of the first attribute that could not be set; others may be set.
    pub async fn set_attributes(
        &self,
        path: &str,
        attributes: &[(&str, &[u8])],
        only_new: bool,
    ) -> Result<(), Error> {
        AttributeOwner::Path(self, path).set(attributes, only_new).await
    }

    /// Removes extended attributes of a path.
    ///
    /// # Errors
    /// [`Error`] of the first attribute that could not be removed; others may be removed.
    pub async fn remove_attributes(&self, path: &str, names: &[&str]) -> Result<(), Error> {
        AttributeOwner::Path(self, path).remove(names).await
    }

    /// Returns all extended attributes of a path.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_attributes(&self, path: &str) -> Result<Vec<Attribute>, Error> {
        AttributeOwner::Path(self, path).list().await
    }

    /// Sends a ping and returns the time until the reply.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn ping(&self) -> Result<Duration, Error> {
        let begun = tokio::time::Instant::now();
        self.ask("ping", "", true, |_, _| Encoded::new(&Request::Ping(Ping))).await?;
        Ok(begun.elapsed())
    }

    /// Returns the server's description of itself.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn server(&self) -> Result<ServerInfo, Error> {
        Ok(self.client.channel(&self.url).await?.server())
    }

    /// Sends a setting of this session to the server: `appid …`, `monitor on`, `cache …`. The reply
    /// is usually empty.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set(&self, text: &str) -> Result<Vec<u8>, Error> {
        let request =
            |_: &Url, _: bool| Encoded::new(&Request::Set(Set { modifier: 0, text: text.as_bytes() }));
        let ReplyContent { body, .. } = self.ask("set", "", true, request).await?.received;
        Ok(body)
    }

    /// Reports whether the path is a directory.
    ///
    /// # Errors
    /// [`Error`], except for a missing path.
    pub async fn is_dir(&self, path: &str) -> Result<bool, Error> {
        match self.stat(path).await {
            Ok(stat) => Ok(stat.is_dir()),
            Err(error) if matches!(error.code(), Some(ErrorCode::NOT_FOUND | ErrorCode::FS_ERROR)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn stat(target: &RequestTarget, options: StatOptions) -> Encoded {
    let (wants, fhandle) = (StatWants::NONE, FileHandle::default());
    Encoded::new(&Request::Stat(Stat { options, wants, fhandle, path: target.as_bytes() }))
}

pub(crate) fn query(infotype: QueryType, argument: &RequestTarget) -> Encoded {
    let args = [argument.as_bytes(), b"\0"].concat();
    Encoded::new(&Request::Query(Query { infotype, fhandle: FileHandle::default(), args: &args }))
}
