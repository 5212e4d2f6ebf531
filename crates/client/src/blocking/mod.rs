//! The blocking client: each call waits for its result.
//!
//! It needs no runtime and is safe after `fork`. One thread drives the connections of all clones of
//! a [`BlockingClient`]; calls run on the threads of their callers. A child process creates its own
//! thread, connections and open files on first use of an inherited value: see `PerProcess`. A
//! file that the parent has open for writing is opened again as an update, which servers refuse as
//! long as the parent holds the lock.

mod per_process;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use self::per_process::PerProcess;
use crate::answers::{Attribute, FileChecksum, RemoteEntry, ReplicaLocation, SpaceInfo, StatInfo, VfsInfo};
use crate::attributes::NamedValue;
use crate::credentials::Credentials;
use crate::failure::{Cause, Error};
use crate::file::{OpenWith, VectorLimits};
use crate::filesystem::ListWith;
use crate::settings::Settings;
use crate::url::Url;
use crate::{Bytes, Matches, ServerInfo};
use wire::xroot::codes::QueryType;
use wire::xroot::flags::{LocateOptions, OpenOptions, PrepareOptions};
use wire::xroot::reply::ChkpointSizes;

/// Settings, connections and the thread that drives them. Clones share one client.
#[derive(Clone)]
pub struct BlockingClient(Arc<ProcessRuntimes>);

struct ProcessRuntimes {
    settings: Settings,
    credentials: Credentials,
    program: String,
    engines: PerProcess<ProcessRuntime>,
}

/// The runtime and client of one process.
struct ProcessRuntime {
    runtime: Handle,
    client: crate::Client,
    /// Ends the thread when it is dropped.
    _until: oneshot::Sender<()>,
}

impl fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl ProcessRuntime {
    fn start(settings: &Settings, credentials: &Credentials, program: &str) -> std::io::Result<Self> {
        let (until, end) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let client = crate::Client::with(settings.clone(), credentials.clone(), program);
        let drive = move || {
            let _ = runtime.block_on(end);
            // The shutdown does not wait for name lookups in progress.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("xroot client".to_owned()).spawn(drive)?;
        Ok(Self { runtime: handle, client, _until: until })
    }

    fn run<F: Future + Send>(&self, call: F) -> F::Output
    where
        F::Output: Send,
    {
        if Handle::try_current().is_err() {
            return self.runtime.block_on(call);
        }
        // Tokio does not allow a thread of a runtime to block, so another thread does it.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| self.runtime.block_on(call));
            waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl BlockingClient {
    /// Creates a client like [`crate::Client::new`].
    #[must_use]
    pub fn new(credentials: Credentials, program: &str) -> Self {
        Self::with(Settings::of_process(), credentials, program)
    }

    /// Creates a client like [`crate::Client::with`].
    #[must_use]
    pub fn with(settings: Settings, credentials: Credentials, program: &str) -> Self {
        let program = program.to_owned();
        Self(Arc::new(ProcessRuntimes { settings, credentials, program, engines: PerProcess::new() }))
    }

    /// Returns the settings of the client.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    fn engine(&self, target: &Url) -> Result<&ProcessRuntime, Error> {
        let made = self
            .0
            .engines
            .get(|| ProcessRuntime::start(&self.0.settings, &self.0.credentials, &self.0.program));
        made.map_err(|error| Error::new("start", target, Cause::NoRuntime(error.to_string())))
    }

    /// Runs an operation that has no method here: passes the client of this process to `call` and
    /// waits for the future that `call` returns.
    ///
    /// # Errors
    /// Those of `call`, and a failure to start a thread in this process.
    pub fn run<T, F>(&self, target: &Url, call: impl FnOnce(crate::Client) -> F) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let engine = self.engine(target)?;
        engine.run(call(engine.client.clone()))
    }

    /// Returns a file system like [`crate::Client::file_system`].
    #[must_use]
    pub fn file_system(&self, url: &Url) -> BlockingFileSystem {
        BlockingFileSystem { client: self.clone(), url: url.clone() }
    }

    /// Opens a file like [`crate::Client::open`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(&self, url: &Url, with: &OpenWith) -> Result<BlockingFile, Error> {
        let file = BlockingFile {
            client: self.clone(),
            url: url.clone(),
            with: with.clone(),
            files: PerProcess::new(),
        };
        let engine = self.engine(url)?;
        file.files.get(|| engine.run(engine.client.open(url, with)))?;
        Ok(file)
    }
}

/// Defines methods that wait for the future of the same name.
macro_rules! wait_for {
    ($of:literal: $($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("As [`", $of, "::", stringify!($name), "`](crate::", $of, "::", stringify!($name), ").")]
            ///
            /// # Errors
            /// [`Error`].
            pub fn $name(&self, $($argument: $kind),*) -> Result<$result, Error> {
                let (engine, target) = self.target()?;
                engine.run(target.$name($($argument),*))
            }
        )*
    };
}

/// A file system with blocking methods; see [`crate::FileSystem`].
#[derive(Clone, Debug)]
pub struct BlockingFileSystem {
    client: BlockingClient,
    url: Url,
}

impl BlockingFileSystem {
    fn target(&self) -> Result<(&ProcessRuntime, crate::FileSystem), Error> {
        let engine = self.client.engine(&self.url)?;
        Ok((engine, engine.client.file_system(&self.url)))
    }

    /// Returns the URL of the file system.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    wait_for! { "FileSystem":
        stat(path: &str) -> StatInfo;
        find(path: &str) -> Option<StatInfo>;
        stat_vfs(path: &str) -> VfsInfo;
        stat_many(paths: &[&str]) -> Vec<(bool, bool)>;
        list(path: &str, with: &ListWith) -> Vec<RemoteEntry>;
        list_all(path: &str, with: &ListWith) -> Vec<RemoteEntry>;
        matching(path: &str) -> Matches;
        is_dir(path: &str) -> bool;
        mkdir(path: &str, mode: u16, parents: bool) -> ();
        mkdir_all(path: &str, mode: u16) -> ();
        rm(path: &str) -> ();
        rmdir(path: &str) -> ();
        mv(old: &str, new: &str) -> ();
        chmod(path: &str, mode: u16) -> ();
        truncate(path: &str, size: u64) -> ();
        locate(path: &str, options: LocateOptions) -> Vec<ReplicaLocation>;
        locate_deep(path: &str, options: LocateOptions) -> Vec<ReplicaLocation>;
        query(infotype: QueryType, argument: &str) -> Vec<u8>;
        checksum(path: &str, kind: Option<&str>) -> FileChecksum;
        space(path: &str) -> SpaceInfo;
        config(keys: &[&str]) -> Vec<Option<String>>;
        prepare(paths: &[&str], options: PrepareOptions, priority: u8) -> String;
        prepare_status(id: &str, paths: &[&str]) -> String;
        evict(paths: &[&str]) -> ();
        cancel(id: &str) -> ();
        ping() -> Duration;
        server() -> ServerInfo;
        set(text: &str) -> Vec<u8>;
        attribute_values(path: &str, names: &[&str]) -> Vec<NamedValue>;
        set_attributes(path: &str, attributes: &[(&str, &[u8])], only_new: bool) -> ();
        remove_attributes(path: &str, names: &[&str]) -> ();
        list_attributes(path: &str) -> Vec<Attribute>;
    }
}

/// A file with blocking methods; see [`crate::File`]. Threads may share it. A child process opens
/// it again on first use.
pub struct BlockingFile {
    client: BlockingClient,
    url: Url,
    with: OpenWith,
    files: PerProcess<crate::File>,
}

impl fmt::Debug for BlockingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.url)
    }
}

impl BlockingFile {
    fn target(&self) -> Result<(&ProcessRuntime, crate::File), Error> {
        let engine = self.client.engine(&self.url)?;
        let options = self.with.again_options().without(OpenOptions::RETSTAT);
        let again = OpenWith { options, ..self.with.clone() };
        let file = self.files.get(|| engine.run(engine.client.open(&self.url, &again)))?;
        Ok((engine, file.clone()))
    }

    /// Returns the URL as it was opened.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the status like [`crate::File::stat_at_open`].
    #[must_use]
    pub fn stat_at_open(&self) -> Option<StatInfo> {
        self.files.known().and_then(crate::File::stat_at_open)
    }

    /// Writes like [`crate::File::write`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let (engine, file) = self.target()?;
        engine.run(file.write(offset, data.into()))
    }

    /// Writes like [`crate::File::write_pages`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn write_pages(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let (engine, file) = self.target()?;
        engine.run(file.write_pages(offset, data.into()))
    }

    /// Writes like [`crate::File::write_checkpointed`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn write_checkpointed(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let (engine, file) = self.target()?;
        engine.run(file.write_checkpointed(offset, data.into()))
    }

    wait_for! { "File":
        truncate_checkpointed(size: u64) -> ();
        stat() -> StatInfo;
        sync() -> ();
        truncate(size: u64) -> ();
        close() -> ();
        read(offset: u64, length: usize) -> Bytes;
        read_into(offset: u64, into: &mut [u8]) -> usize;
        read_pages(offset: u64, length: usize) -> Bytes;
        read_vector(ranges: &[(u64, usize)]) -> Vec<Bytes>;
        read_vector_with(ranges: &[(u64, usize)], limits: VectorLimits) -> Vec<Bytes>;
        write_vector(pieces: &[(u64, Bytes)], sync: bool) -> ();
        query(infotype: QueryType, argument: &[u8]) -> Vec<u8>;
        visa() -> String;
        begin_checkpoint() -> ();
        commit_checkpoint() -> ();
        roll_back() -> ();
        checkpoint_sizes() -> ChkpointSizes;
        attribute_values(names: &[&str]) -> Vec<NamedValue>;
        set_attributes(attributes: &[(&str, &[u8])], only_new: bool) -> ();
        remove_attributes(names: &[&str]) -> ();
        list_attributes() -> Vec<Attribute>;
    }
}
