//! `scalla map`: shows the tree of a cluster as seen from outside, and the nodes that do not
//! answer.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`MapCommand`]: the command |
//! | `cluster_walk` | traversal of the tree, with requests that any node answers |
//! | `render` | formatting of the tree, as text and as JSON |

pub(crate) mod cluster_walk;
mod render;

use crate::environment::{self, ClientRuntime};
use crate::exit_status::USAGE;
use crate::named_servers;
use crate::printer::{err, out};
use client::{Client, Url};
use cluster_walk::{ChildNodes, ClusterWalk, MapNode, RoleProbe};
use render::NodeFilter;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

/// Draw the tree of a cluster: its managers, supervisors and servers, and the nodes that do not
/// answer.
///
/// All nodes are queried. The exit status is 1 if a node does not answer or, with --path, if no
/// server has the file.
#[derive(clap::Args, Debug)]
pub(crate) struct MapCommand {
    #[allow(rustdoc::broken_intra_doc_links, reason = "help text")]
    /// Node at the top of the tree, usually the top manager: root://HOST[:PORT] or HOST[:PORT].
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: Option<String>,
    /// Mark the servers that have this file.
    #[arg(long, short, value_name = "PATH")]
    path: Option<String>,
    /// Query each server for the file instead of relying on the managers' information.
    #[arg(long, short, requires = "path")]
    verify: bool,
    /// Make managers search for the file again.
    #[arg(long, short, requires = "path")]
    refresh: bool,
    /// Show managers and servers (all), managers alone (m), or a plain list of servers (s).
    #[arg(long, short, value_name = "WHICH", default_value = "all")]
    list: NodeFilter,
    /// Print host names instead of addresses, if managers know them.
    #[arg(long, short)]
    names: bool,
    /// Print the version of each node.
    #[arg(long)]
    versions: bool,
    /// Timeout for the answer of each node, in seconds.
    #[arg(long, short, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Print the tree as JSON.
    #[arg(long)]
    json: bool,
}

/// Exit status when a node does not answer or no server has the file.
const INCOMPLETE: u8 = 1;

impl MapCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let ClientRuntime { runtime, log: _log } = environment::start_runtime(0)?;
        Ok(runtime.block_on(self.perform(&environment::client("scalla"), None)))
    }

    /// Draws the tree. Without a URL, that of the cluster of the current server.
    pub(crate) async fn perform(self, client: &Client, at: Option<&Url>) -> ExitCode {
        let url = match (&self.url, at) {
            (Some(text), _) => named_servers::parse_server(text),
            (None, Some(url)) => Ok(url.clone()),
            (None, None) => Err("name the cluster: scalla map root://HOST[:PORT]".to_owned()),
        };
        let path = self.path.as_deref().map_or(Ok(None), |path| absolute(path, at).map(Some));
        let (url, path) = match (url, path) {
            (Ok(url), Ok(path)) => (url, path),
            (Err(why), _) | (_, Err(why)) => {
                err().error(why);
                return ExitCode::from(USAGE);
            }
        };
        let walk = ClusterWalk {
            path,
            refresh: self.refresh,
            verify: self.verify,
            skips_path: false,
            enters_managers: true,
            names: self.names,
            probe: Some(RoleProbe { time: Duration::from_secs(self.timeout), version: self.versions }),
        };
        let root = read_tree(client, &url, &walk).await;
        let sum = render::NodeCounts::of(&root);
        let text = match (self.json, self.list) {
            (true, _) => format!("{}\n", render::json(&root, &walk, self.list)),
            (false, NodeFilter::S) => render::servers(&root, &walk),
            (false, _) => render::tree(&root, &walk, self.list),
        };
        out().lines(text);
        let found = walk.path.is_none() || sum.with_file > 0;
        if sum.unreachable == 0 && found { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
    }
}

/// Returns the absolute path. Relative paths begin at the current directory.
fn absolute(path: &str, at: Option<&Url>) -> Result<String, String> {
    match at {
        _ if path.starts_with('/') => Ok(path.to_owned()),
        Some(at) if !path.is_empty() => Ok(format!("{}/{path}", at.path.trim_end_matches('/'))),
        _ => Err(format!("`{path}` does not begin with /")),
    }
}

/// Returns the starting node, with all nodes below it.
async fn read_tree(client: &Client, url: &Url, walk: &ClusterWalk) -> MapNode {
    let fs = client.file_system(url);
    let about = walk.about(&fs).await;
    let is_server = matches!(&about, Some(Ok(about)) if about.role == "server");
    let own = addresses(url).await;
    let mut seen: HashSet<String> = own.iter().cloned().collect();
    let mut below = match about {
        Some(Err(_)) => ChildNodes::default(),
        _ => walk.children_of(&fs, &mut seen).await,
    };
    let mut root = MapNode {
        location: client::ReplicaLocation {
            address: url.authority(),
            is_manager: !is_server,
            pending: false,
            writable: true,
        },
        is_selected: false,
        verified: None,
        about,
        is_duplicate: false,
        children: ChildNodes::default(),
    };
    if is_server {
        // A server lists itself when asked for the nodes below it.
        if let Some(index) = below.nodes.iter().position(|node| own.contains(&node.location.address)) {
            let itself = below.nodes.remove(index);
            (root.is_selected, root.verified) = (itself.is_selected, itself.verified);
        }
    }
    root.children = below;
    root
}

/// Returns the addresses by which managers may know the node of a URL.
async fn addresses(url: &Url) -> Vec<String> {
    let mut all = vec![url.authority()];
    if let Ok(found) = tokio::net::lookup_host((url.host.as_str(), url.port)).await {
        for address in found {
            all.push(match address.ip().to_canonical() {
                std::net::IpAddr::V4(ip) => format!("[::{ip}]:{}", url.port),
                std::net::IpAddr::V6(ip) => format!("[{ip}]:{}", url.port),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_or_begin_where_we_are() {
        let at = Url::parse("root://h//a/").unwrap();
        assert_eq!(absolute("b", Some(&at)).as_deref(), Ok("/a/b"));
        assert_eq!(absolute("/b", Some(&at)).as_deref(), Ok("/b"));
        assert!(absolute("b", None).is_err());
    }
}
