//! `scalla cluster drain --wait`: waits until no file is open at a drained node.

use super::client_port;
use crate::printer::{err, out};
use anyhow::{Context, bail};
use serde_json::json;
use server::admin::{AdminRequest, ask};
use server::cluster::{Activity, NodeState, NodeStatus, survey};
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval between two queries for open files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The drained node.
pub(super) struct DrainedNode<'a> {
    /// The admin socket of the node that received the order.
    pub(super) socket: &'a Path,
    /// The name of the drained node for messages.
    pub(super) node: &'a str,
    /// The address of the drained node if it is a child of the node that received the order.
    pub(super) child: Option<&'a str>,
}

impl DrainedNode<'_> {
    /// Waits until no file is open there, and reports each change. Returns `false` if some are open
    /// after `limit`.
    pub(super) fn wait_until_empty(&self, limit: Option<Duration>, json: bool) -> anyhow::Result<bool> {
        let begun = Instant::now();
        let mut reported = None;
        loop {
            let left = self.left()?;
            let is_empty = left.open_files == 0;
            if reported != Some(left) {
                self.report(left, json);
                reported = Some(left);
            }
            if is_empty {
                return Ok(true);
            }
            let pause =
                limit.map_or(POLL_INTERVAL, |limit| POLL_INTERVAL.min(limit.saturating_sub(begun.elapsed())));
            if pause.is_zero() {
                err().line(format_args!("{left} after the time limit; {} continues to drain", self.node));
                return Ok(false);
            }
            std::thread::sleep(pause);
        }
    }

    fn report(&self, left: Activity, json: bool) {
        let state = if left.open_files == 0 { NodeState::Drained } else { NodeState::Draining };
        let Activity { open_files, open_for_writing, clients } = left;
        if json {
            out().json(&json!({
                "node": self.node, "state": state.word(), "open_files": open_files,
                "open_for_writing": open_for_writing, "clients": clients
            }));
        } else if open_files == 0 {
            out().line(format_args!("{state} {}", self.node));
        } else {
            out().line(format_args!("{state} {}: {left}", self.node));
        }
    }

    /// Counts the open files and clients at the node, or at all servers below it.
    fn left(&self) -> anyhow::Result<Activity> {
        let Some(address) = self.child else {
            let status = ask(self.socket, &AdminRequest::Status {})?;
            let figure = |name: &str| status[name].as_u64().unwrap_or_default();
            return Ok(Activity {
                open_files: figure("open_files"),
                open_for_writing: figure("open_for_writing"),
                clients: figure("sessions"),
            });
        };
        let servers = self.servers(address)?;
        let mut left = Activity::default();
        for server in &servers {
            let more = client_port::activity(server)
                .with_context(|| format!("cannot count the files that are open at {server}"))?;
            left.open_files += more.open_files;
            left.open_for_writing += more.open_for_writing;
            left.clients += more.clients;
        }
        Ok(left)
    }

    /// Returns the servers whose files are counted: the child, or those below it.
    fn servers(&self, address: &str) -> anyhow::Result<Vec<String>> {
        let own: NodeStatus = serde_json::from_value(ask(self.socket, &AdminRequest::ClusterStatus {})?)?;
        let is_leaf = |status: &NodeStatus| {
            status.children.iter().any(|child| child.address == address && child.cluster_address.is_none())
        };
        if is_leaf(&own) {
            return Ok(vec![address.to_owned()]);
        }
        let tree = survey(own, &client_port::ClientPort);
        match below(&tree.root, address) {
            Some(node) => Ok(leaves(node)),
            None => bail!("{address} has left the cluster or does not answer: {}", tree.missing.join("; ")),
        }
    }
}

/// Finds the node with children at an address.
fn below<'a>(node: &'a NodeStatus, address: &str) -> Option<&'a NodeStatus> {
    node.children.iter().find_map(|child| {
        let status = child.node.as_deref()?;
        if child.address == address { Some(status) } else { below(status, address) }
    })
}

/// Returns the addresses of all connected servers below a node.
fn leaves(node: &NodeStatus) -> Vec<String> {
    let mut found = Vec::new();
    for child in node.children.iter().filter(|child| !NodeState::Away.is(&child.state)) {
        match &child.node {
            Some(node) => found.append(&mut leaves(node)),
            None if child.cluster_address.is_none() => found.push(child.address.clone()),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::cluster::ChildStatus;

    #[test]
    fn the_servers_below_a_node_are_found() {
        let child = |address: &str, state: &str, node: Option<NodeStatus>| ChildStatus {
            address: address.to_owned(),
            state: state.to_owned(),
            cluster_address: node.as_ref().map(|_| "x:1".to_owned()),
            node: node.map(Box::new),
            ..ChildStatus::default()
        };
        let with = |children| NodeStatus { children, ..NodeStatus::default() };
        let inner = with(vec![child("a:1", "serving", None), child("b:1", "away", None)]);
        let middle = with(vec![child("u2:1", "draining", Some(inner)), child("c:1", "draining", None)]);
        let root = with(vec![child("u1:1", "draining", Some(middle)), child("d:1", "serving", None)]);
        let servers = |address: &str| below(&root, address).map(leaves);
        assert_eq!(servers("u1:1"), Some(vec!["a:1".to_owned(), "c:1".to_owned()]));
        assert_eq!(servers("u2:1"), Some(vec!["a:1".to_owned()]));
        assert_eq!(servers("d:1"), None);
    }
}
