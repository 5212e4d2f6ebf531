//! Traversal of a cluster tree from one of its nodes. Each manager is asked for the nodes below it.

use client::xroot::flags::{LocateOptions, ServerFlags};
use client::{Cause, Error, FileSystem, RemotePath, ReplicaLocation};
use std::collections::HashSet;
use std::time::Duration;
use tokio::task::JoinSet;

/// The parameters of a traversal.
#[derive(Clone, Default)]
pub(crate) struct ClusterWalk {
    /// The file whose servers are marked.
    pub(crate) path: Option<String>,
    /// Managers search for the file again.
    pub(crate) refresh: bool,
    /// Every server is asked whether it has the file.
    pub(crate) verify: bool,
    /// Managers are not asked about the file, because a manager above them could not answer.
    pub(crate) skips_path: bool,
    /// Managers are asked for the nodes below them.
    pub(crate) enters_managers: bool,
    /// Managers report host names instead of addresses, if they know them.
    pub(crate) names: bool,
    /// Every node is asked for its role, with this timeout. Managers that do not answer are not
    /// entered.
    pub(crate) probe: Option<RoleProbe>,
}

/// The parameters of role requests to nodes.
#[derive(Clone, Copy)]
pub(crate) struct RoleProbe {
    /// Timeout of the connection and of each reply.
    pub(crate) time: Duration,
    /// Set if the version is requested too.
    pub(crate) version: bool,
}

/// The role and version that a node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleAnswer {
    pub(crate) role: &'static str,
    /// `None` if it was not requested or not reported.
    pub(crate) version: Option<String>,
}

/// A node as known by the manager above it.
pub(crate) struct MapNode {
    pub(crate) location: ReplicaLocation,
    /// Set if the manager above would redirect clients there.
    pub(crate) is_selected: bool,
    /// The reply of the node whether it has the file, if it was asked.
    pub(crate) verified: Option<Result<bool, Error>>,
    /// The role of the node, if it was asked.
    pub(crate) about: Option<Result<RoleAnswer, Error>>,
    /// Set if the node was found before. It is drawn at its first position.
    pub(crate) is_duplicate: bool,
    pub(crate) children: ChildNodes,
}

/// The nodes below a manager.
#[derive(Default)]
pub(crate) struct ChildNodes {
    /// Servers before managers, each kind in reverse order of the reply.
    pub(crate) nodes: Vec<MapNode>,
    pub(crate) unanswered: Option<UnansweredRequest>,
}

/// A request that a manager did not answer.
pub(crate) enum UnansweredRequest {
    /// The nodes below it.
    Children(Error),
    /// The servers that have the file. Managers below it are not asked either.
    Path(Error),
}

impl UnansweredRequest {
    pub(crate) const fn error(&self) -> &Error {
        match self {
            Self::Children(error) | Self::Path(error) => error,
        }
    }
}

impl ClusterWalk {
    /// Traverses the nodes below a node. Nodes whose addresses are in `seen` are not entered again.
    pub(crate) async fn children_of(&self, fs: &FileSystem, seen: &mut HashSet<String>) -> ChildNodes {
        let names = if self.names { LocateOptions::PREFNAME } else { LocateOptions::NONE };
        let all = match self.with_timeout(fs, "locate", fs.locate("*", names)).await {
            Ok(all) => all,
            Err(error) => {
                return ChildNodes {
                    nodes: Vec::new(),
                    unanswered: Some(UnansweredRequest::Children(error)),
                };
            }
        };
        let mut trouble = None;
        let mut chosen = HashSet::new();
        if let Some(path) = self.path.as_ref().filter(|_| !self.skips_path) {
            let refresh = if self.refresh { LocateOptions::REFRESH } else { LocateOptions::NONE };
            match self.with_timeout(fs, "locate", fs.locate(path, names | refresh)).await {
                Ok(some) => chosen.extend(some.into_iter().map(|location| location.address)),
                Err(error) if error.is_not_found() => {}
                Err(error) => trouble = Some(UnansweredRequest::Path(error)),
            }
        }
        let node = |location: ReplicaLocation| MapNode {
            is_selected: chosen.contains(&location.address),
            location,
            verified: None,
            about: None,
            is_duplicate: false,
            children: ChildNodes::default(),
        };
        let (managers, mut nodes): (Vec<MapNode>, Vec<MapNode>) =
            all.into_iter().rev().map(node).partition(|node| node.location.is_manager);
        let first = nodes.len();
        nodes.extend(managers);
        let walk = Self { skips_path: self.skips_path || trouble.is_some(), ..self.clone() };
        walk.query_nodes(fs, &mut nodes).await;
        for manager in nodes.iter_mut().skip(first).filter(|_| self.enters_managers) {
            if !seen.insert(manager.location.address.clone()) {
                manager.is_duplicate = true;
            } else if !matches!(manager.about, Some(Err(_))) {
                manager.children = Box::pin(walk.children_of(&fs.beside(&manager.location), seen)).await;
            }
        }
        ChildNodes { nodes, unanswered: trouble }
    }

    /// Sends the requests of the traversal to the nodes of a level, concurrently.
    async fn query_nodes(&self, fs: &FileSystem, nodes: &mut [MapNode]) {
        let mut tasks = JoinSet::new();
        for (index, node) in nodes.iter().enumerate() {
            let (walk, fs, is_server) = (self.clone(), fs.beside(&node.location), !node.location.is_manager);
            tasks.spawn(async move {
                let about = walk.about(&fs).await;
                let path = walk.path.as_ref().filter(|_| walk.verify && is_server);
                let verified = match (path, &about) {
                    (None, _) => None,
                    (_, Some(Err(error))) => Some(Err(error.clone())),
                    (Some(path), _) => {
                        Some(walk.with_timeout(&fs, "stat", fs.find(path)).await.map(|found| found.is_some()))
                    }
                };
                (index, about, verified)
            });
        }
        while let Some(Ok((index, about, verified))) = tasks.join_next().await {
            if let Some(node) = nodes.get_mut(index) {
                (node.about, node.verified) = (about, verified);
            }
        }
    }

    /// Returns the role and version of a node, if they are to be requested.
    pub(crate) async fn about(&self, fs: &FileSystem) -> Option<Result<RoleAnswer, Error>> {
        let probe = self.probe?;
        let ask = async {
            let flags = fs.server().await?.flags;
            let keys = if probe.version { &["role", "version"][..] } else { &["role"][..] };
            let mut values = fs.config(keys).await?.into_iter().map(Option::unwrap_or_default);
            // Supervisors of XRootD do not report their role in the flags of their login.
            let role = values.next().and_then(|role| known_role(&role)).unwrap_or(role_of(flags));
            Ok::<_, Error>(RoleAnswer { role, version: values.next().filter(|version| !version.is_empty()) })
        };
        Some(self.with_timeout(fs, "ask", ask).await)
    }

    /// Limits the time of an operation to the timeout of nodes, if one is set.
    async fn with_timeout<T>(
        &self,
        fs: &FileSystem,
        operation: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(RoleProbe { time, .. }) = self.probe else { return work.await };
        let late = |_| {
            let server = fs.url().authority();
            Error::new(operation, fs.url().at(RemotePath::default()), Cause::TimedOut(time.as_secs()))
                .at(server, &[])
        };
        tokio::time::timeout(time, work).await.map_err(late)?
    }
}

/// Returns the role named in a configuration reply.
fn known_role(text: &str) -> Option<&'static str> {
    ["meta manager", "manager", "supervisor", "server"].into_iter().find(|role| *role == text)
}

/// Returns the role according to the flags of the login.
const fn role_of(flags: ServerFlags) -> &'static str {
    if flags.contains(ServerFlags::ATTR_META) {
        "meta manager"
    } else if flags.contains(ServerFlags::ATTR_SUPER) {
        "supervisor"
    } else if flags.contains(ServerFlags::IS_MANAGER) {
        "manager"
    } else {
        "server"
    }
}
