//! A load with its goals: the types that describe it.

use crate::figures::{Figure, Goal};
use crate::proxies::ProxyPlan;
use crate::proxy_rows::ProxyTask;
use crate::secured::RowSecurity;
use crate::web_rows::WebRequests;

pub(crate) const CPU: Figure = Figure::Cpu;
pub(crate) const THROUGHPUT: Figure = Figure::Throughput;

/// Rate limits in bytes per second of a limited server: for each connection, and for all.
pub(crate) const CONNECTION_RATE: u64 = 6_000_000;
pub(crate) const SERVER_RATE: u64 = 16_000_000;
/// Duration of a copy from limited servers at their full rate, which results in files of several
/// hundred megabytes. The last blocks of a file are shared less evenly than the others, so a
/// shorter copy would give them too much weight.
const SECONDS: u64 = 10;

/// A load with its goals and setting.
#[derive(Debug)]
pub(crate) struct Row {
    /// Name for `--only`, which contains the parameters.
    pub(crate) name: String,
    /// Human-readable description.
    pub(crate) title: String,
    pub(crate) load: RowLoad,
    /// Arguments of `scalla bench` for the corresponding load of the floor.
    pub(crate) floor: Option<Vec<String>>,
    /// The load is also measured with the bare server.
    pub(crate) bare: bool,
    /// Bytes of data of an encrypted operation, whose floor is the cipher alone.
    pub(crate) encrypted_bytes: Option<usize>,
    pub(crate) goals: Vec<Goal>,
    pub(crate) setting: RowSetting,
}

/// The setting in which the servers are started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RowSetting {
    /// Lines of our server's configuration; it has no configuration file if there are none.
    pub(crate) ours: Vec<&'static str>,
    /// Additional lines of XRootD's configuration.
    pub(crate) theirs: Vec<&'static str>,
    /// The files are on tmpfs.
    pub(crate) tmpfs: bool,
    /// New servers are started for each run, because memory is measured.
    pub(crate) fresh: bool,
    pub(crate) cast: MeasuredServers,
    /// Authentication or TLS; none by default.
    pub(crate) security: Option<RowSecurity>,
}

/// The servers that run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum MeasuredServers {
    /// One server of each kind.
    #[default]
    Servers,
    /// A manager and four servers of each side; the manager is measured.
    Clusters,
    /// A manager of each side with four XRootD servers.
    Managers,
    /// Our manager with 64 servers that list all their names.
    Large,
    /// Our manager without servers.
    Root,
    /// Only our server, on slow storage.
    Slow,
    /// Our server twice, for our client and theirs.
    Clients,
    /// XRootD twice, for our client and theirs.
    TheirClients,
    /// Several rate-limited servers of ours.
    Limited,
    /// Proxies in front of one origin.
    Proxies(ProxyPlan),
    /// Servers of each kind with HTTP.
    Web,
    /// Our server with HTTP, and nginx.
    Nginx,
}

/// The kind of a load.
#[derive(Debug)]
pub(crate) enum RowLoad {
    /// `scalla bench` with these arguments; the path of the URL is the second one.
    Bench(Vec<String>),
    /// `xrdcp` of a file from tmpfs to tmpfs.
    Download,
    /// `xrdcp` of a file from tmpfs to the server's disk.
    Upload,
    /// Cached reads with concurrent reads of an uncached file.
    Mixed,
    /// Many busy connections, after 64 of them.
    Busy,
    /// One load alone, and then with another one.
    Beside(ConcurrentLoads),
    /// Opens that a manager redirects.
    Located(OpenedFiles),
    /// A query of a manager for a missing file.
    Missing,
    /// First opens at a manager alone, and then with many concurrent queries for missing files.
    Misses,
    /// A task of a client; it compares clients instead of servers.
    Errand(ClientTask),
    /// A read of a file from several servers.
    Gather(SourceServers),
    /// This number of open files in one client.
    Crowd(usize),
    /// The formation of a cluster of a thousand nodes.
    Formation,
    /// A restart of a manager after it was killed.
    Restart,
    /// A load of proxies.
    Proxy(ProxyTask),
    /// Requests to stage files.
    StageRequests,
    /// Requests over HTTP.
    Web(WebRequests),
}

/// Two loads as arguments of `scalla bench`.
#[derive(Debug)]
pub(crate) struct ConcurrentLoads {
    pub(crate) watched: Vec<String>,
    pub(crate) other: Vec<String>,
    pub(crate) how: RowMethod,
}

/// The kind of the other load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowMethod {
    /// The file is on slow storage.
    Slow,
    /// The file is kept out of the page cache.
    Cold,
    /// The generator has lower priority on the shared processor, so that only the fairness of the
    /// server is measured.
    GivesWay,
}

impl RowLoad {
    /// Returns the parts of the load that are arguments of `scalla bench`.
    pub(crate) fn arguments(&self) -> Vec<&[String]> {
        match self {
            Self::Bench(arguments) => vec![arguments],
            Self::Beside(both) => vec![&both.watched, &both.other],
            Self::Download
            | Self::Upload
            | Self::Mixed
            | Self::Busy
            | Self::Located(_)
            | Self::Missing
            | Self::Misses
            | Self::Errand(_)
            | Self::Gather(_)
            | Self::Crowd(_)
            | Self::Formation
            | Self::Restart
            | Self::Proxy(_)
            | Self::StageRequests
            | Self::Web(_) => Vec::new(),
        }
    }
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Creates a row from name, title, kind of load with its path, options and goals.
pub(crate) fn bench(name: &str, title: &str, kind: &str, path: &str, options: &str, goals: &[Goal]) -> Row {
    let mut arguments = vec![kind.to_owned(), path.to_owned()];
    arguments.extend(words(options));
    Row {
        name: name.to_owned(),
        title: title.to_owned(),
        load: RowLoad::Bench(arguments),
        floor: None,
        encrypted_bytes: None,
        bare: false,
        goals: goals.to_vec(),
        setting: RowSetting::default(),
    }
}

impl Row {
    /// Adds the floor with the same load.
    pub(crate) fn floor(mut self) -> Self {
        if let RowLoad::Bench(arguments) = &self.load {
            self.floor = Some(arguments.clone());
        }
        self
    }

    /// Adds the bare server.
    pub(crate) fn bare(self) -> Self {
        Self { bare: true, ..self }
    }

    /// Adds the floor with another request of the same number of bytes.
    pub(crate) fn floor_with(mut self, kind: &str, options: &str) -> Self {
        let mut arguments = vec![kind.to_owned(), "/floor".to_owned()];
        arguments.extend(words(options));
        self.floor = Some(arguments);
        self
    }

    /// Adds a line to the configuration of our server.
    pub(crate) fn ours(mut self, line: &'static str) -> Self {
        self.setting.ours.push(line);
        self
    }

    /// Adds a line to the configuration of XRootD.
    pub(crate) fn theirs(mut self, line: &'static str) -> Self {
        self.setting.theirs.push(line);
        self
    }

    /// Starts new servers for each run.
    pub(crate) fn fresh(mut self) -> Self {
        self.setting.fresh = true;
        self
    }
}

/// The task of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientTask {
    /// Copies 2 GiB from tmpfs to tmpfs, with additional connections.
    Download { streams: u32 },
    /// Copies in the other direction.
    Upload { streams: u32 },
    /// Copies a directory of many small files.
    Directory,
    /// Lists a directory repeatedly, each time with a new process.
    List,
}

/// The number of source servers of a file, and of additional connections to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SourceServers {
    pub(crate) servers: usize,
    pub(crate) streams: u64,
}

impl SourceServers {
    /// Returns the maximum rate of the servers in bytes per second.
    pub(crate) fn rate(self) -> u64 {
        // The connection for requests carries data only if it is the only one.
        SERVER_RATE.min(CONNECTION_RATE * self.streams.max(1)) * self.servers as u64
    }

    /// Returns name and size of the file for this copy.
    pub(crate) fn file(self) -> (String, u64) {
        (format!("sources-{}-{}", self.servers, self.streams), self.rate() * SECONDS)
    }
}

/// The state of files before a manager is queried for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenedFiles {
    /// Queried before.
    Known,
    /// Not queried before.
    New,
    /// Not queried before, and created after the start of the servers without their knowledge.
    Placed,
}
