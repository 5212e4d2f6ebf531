//! Formatting of a cluster tree, as text and as JSON.

use super::cluster_walk::{ChildNodes, ClusterWalk, MapNode};
use serde_json::{Value, json};
use server::cluster::NodeState;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Nodes to show.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeFilter {
    All,
    M,
    S,
}

/// Numbers of nodes.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct NodeCounts {
    pub(super) managers: usize,
    pub(super) servers: usize,
    /// Nodes that did not answer all requests.
    pub(super) unreachable: usize,
    /// Servers that have the file.
    pub(super) with_file: usize,
}

impl NodeCounts {
    pub(super) fn of(root: &MapNode) -> Self {
        let mut sum = Self::default();
        sum.add(root);
        sum
    }

    fn add(&mut self, node: &MapNode) {
        if !node.is_duplicate {
            let kind = if node.location.is_manager { &mut self.managers } else { &mut self.servers };
            *kind += 1;
            self.unreachable += usize::from(error_of(node).is_some());
            self.with_file += usize::from(has_file(node) == Some(true));
        }
        node.children.nodes.iter().for_each(|node| self.add(node));
    }
}

/// Returns the error of a node, if any.
fn error_of(node: &MapNode) -> Option<&client::Error> {
    match (&node.about, &node.verified, &node.children.unanswered) {
        (Some(Err(error)), ..) | (_, Some(Err(error)), _) => Some(error),
        (.., Some(trouble)) => Some(trouble.error()),
        _ => None,
    }
}

/// Reports whether a server has the file, if that is known. Managers have none.
fn has_file(node: &MapNode) -> Option<bool> {
    match &node.verified {
        _ if node.location.is_manager => None,
        Some(has) => has.as_ref().ok().copied(),
        None => Some(node.is_selected),
    }
}

/// Returns the role of a node: as reported by itself, or as known by its manager.
fn role(node: &MapNode) -> &'static str {
    match &node.about {
        Some(Ok(about)) => about.role,
        _ if node.location.is_manager => "manager",
        _ => "server",
    }
}

fn version(node: &MapNode) -> Option<&str> {
    node.about.as_ref()?.as_ref().ok()?.version.as_deref()
}

/// Formats an address, without brackets if it is IPv4.
fn address(node: &MapNode) -> String {
    let text = &node.location.address;
    let plain = || {
        let (ip, rest) = text.strip_prefix("[::")?.split_once(']')?;
        let ip: Ipv4Addr = ip.strip_prefix("ffff:").unwrap_or(ip).parse().ok()?;
        Some(format!("{ip}{rest}"))
    };
    plain().unwrap_or_else(|| text.clone())
}

/// Returns the state of a node as a client sees it, in the words of `cluster status`.
fn state(node: &MapNode) -> NodeState {
    match node.about {
        Some(Err(_)) => NodeState::Away,
        _ if node.location.pending => NodeState::NotServing,
        _ => NodeState::Serving,
    }
}

/// Describes the state of a node, and whether it has the file.
fn description(node: &MapNode, walk: &ClusterWalk) -> String {
    let mut words = Vec::new();
    match error_of(node) {
        Some(error) if state(node) == NodeState::Away => {
            words.push(format!("{}: {}", state(node), error.cause()))
        }
        Some(error) => words.extend([state(node).into(), format!("cannot tell: {}", error.cause())]),
        None if node.is_duplicate => {}
        None => words.push(state(node).into()),
    }
    if node.is_duplicate {
        words.push("again, see above".to_owned());
    }
    if walk.path.is_some() {
        match (has_file(node), &node.verified) {
            (Some(true), Some(_)) | (Some(true), None) => words.push("has it".to_owned()),
            (Some(false), Some(_)) if node.is_selected => {
                words.push("does not have it, against its manager".to_owned())
            }
            (None, _) if node.is_selected => words.push("below it".to_owned()),
            _ => {}
        }
    }
    words.join("; ")
}

/// A line: the prefix of the address, and the columns after it.
struct TreeRow {
    front: String,
    role: &'static str,
    version: Option<String>,
    state: String,
}

impl TreeRow {
    fn of(front: &str, node: &MapNode, walk: &ClusterWalk) -> Self {
        Self {
            front: format!("{front}{}", address(node)),
            role: role(node),
            version: version(node).map(str::to_owned),
            state: description(node, walk),
        }
    }
}

/// Formats lines with aligned columns.
fn aligned(lines: &[TreeRow]) -> String {
    let width = |of: &dyn Fn(&TreeRow) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let front = width(&|line| line.front.chars().count());
    let role = width(&|line| line.role.len());
    let version = width(&|line| line.version.as_ref().map_or(0, |version| version.chars().count()));
    let mut out = String::new();
    for line in lines {
        let mut text = format!("{:front$}  {:role$}", line.front, line.role);
        if version > 0 {
            // Writing to a string does not fail.
            let _ = write!(text, "  {:version$}", line.version.as_deref().unwrap_or("-"));
        }
        let _ = write!(text, "  {}", line.state);
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Formats the tree and the totals below it.
pub(super) fn tree(root: &MapNode, walk: &ClusterWalk, list: NodeFilter) -> String {
    let mut lines = vec![TreeRow::of("", root, walk)];
    branches(&mut lines, &root.children, "", walk, list);
    let sum = NodeCounts::of(root);
    let mut out = aligned(&lines);
    let plural = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let _ = write!(out, "{}, {}", plural(sum.managers, "manager"), plural(sum.servers, "server"));
    if sum.unreachable > 0 {
        let _ = write!(out, ", {} in trouble", sum.unreachable);
    }
    if let Some(path) = &walk.path {
        let _ = write!(out, "; {path} is on {}", plural(sum.with_file, "server"));
    }
    out.push('\n');
    out
}

fn branches(
    lines: &mut Vec<TreeRow>,
    below: &ChildNodes,
    indent: &str,
    walk: &ClusterWalk,
    list: NodeFilter,
) {
    let nodes: Vec<&MapNode> = shown(below, list).collect();
    for (index, node) in nodes.iter().enumerate() {
        let (branch, more) = if index + 1 == nodes.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(TreeRow::of(&format!("{indent}{branch}"), node, walk));
        branches(lines, &node.children, &format!("{indent}{more}"), walk, list);
    }
}

/// Returns the nodes to show, in the order of the reply.
fn shown(below: &ChildNodes, list: NodeFilter) -> impl Iterator<Item = &MapNode> {
    below.nodes.iter().filter(move |node| list != NodeFilter::M || node.location.is_manager)
}

/// Formats all servers of the tree, one per line.
pub(super) fn servers(root: &MapNode, walk: &ClusterWalk) -> String {
    let mut lines = Vec::new();
    each_server(root, &mut |node| lines.push(TreeRow::of("", node, walk)));
    aligned(&lines)
}

fn each_server<'a>(node: &'a MapNode, found: &mut impl FnMut(&'a MapNode)) {
    if !node.location.is_manager {
        found(node);
    }
    for node in &node.children.nodes {
        each_server(node, found);
    }
}

/// Returns the tree, or the list of servers, as JSON.
pub(super) fn json(root: &MapNode, walk: &ClusterWalk, list: NodeFilter) -> Value {
    if list == NodeFilter::S {
        let mut all = Vec::new();
        each_server(root, &mut |node| all.push(value(node, walk, list)));
        return all.into();
    }
    value(root, walk, list)
}

fn value(node: &MapNode, walk: &ClusterWalk, list: NodeFilter) -> Value {
    let failure = error_of(node);
    let mut value = json!({
        "address": address(node), "role": role(node), "state": state(node).word(), "reachable": !matches!(node.about, Some(Err(_))),
    });
    if let Some(version) = version(node) {
        value["version"] = version.into();
    }
    if let Some(error) = failure {
        value["error"] = error.to_string().into();
    }
    if walk.path.is_some()
        && let Some(has) = has_file(node)
    {
        value["has"] = has.into();
    }
    if node.is_duplicate {
        value["again"] = true.into();
    }
    if node.location.is_manager {
        value["below"] = shown(&node.children, list).map(|node| self::value(node, walk, list)).collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::cluster_walk::{RoleAnswer, UnansweredRequest};
    use super::*;
    use client::{Cause, Error, ReplicaLocation};

    fn node(address: &str, role: &'static str, nodes: Vec<MapNode>) -> MapNode {
        let is_manager = role != "server";
        let location =
            ReplicaLocation { address: address.to_owned(), is_manager, pending: false, writable: true };
        let about = Some(Ok(RoleAnswer { role, version: None }));
        let below = ChildNodes { nodes, unanswered: None };
        MapNode { location, is_selected: false, verified: None, about, is_duplicate: false, children: below }
    }

    fn cluster() -> MapNode {
        let gone = Error::new("connect", "root://h:3//", Cause::Unreachable("refused".into()));
        let mut dead = node("[::127.0.0.1]:3", "server", vec![]);
        dead.about = Some(Err(gone.clone()));
        let mut holder = node("[2001:db8::1]:4", "server", vec![]);
        holder.is_selected = true;
        let mut sup = node("sup:5", "supervisor", vec![holder]);
        sup.is_selected = true;
        let mut again = node("sup:5", "supervisor", vec![]);
        again.is_duplicate = true;
        let mut mute = node("mute:6", "manager", vec![]);
        mute.children.unanswered = Some(UnansweredRequest::Children(gone));
        node("top:1", "manager", vec![dead, sup, again, mute])
    }

    #[test]
    fn a_tree_tells_roles_states_and_the_sum() {
        let walk = ClusterWalk { path: Some("/f".into()), ..ClusterWalk::default() };
        let expected = "\
top:1                  manager     serving
├─ 127.0.0.1:3         server      away: no connection (refused)
├─ sup:5               supervisor  serving; below it
│  └─ [2001:db8::1]:4  server      serving; has it
├─ sup:5               supervisor  again, see above
└─ mute:6              manager     serving; cannot tell: no connection (refused)
3 managers, 2 servers, 2 in trouble; /f is on 1 server
";
        assert_eq!(tree(&cluster(), &walk, NodeFilter::All), expected);
        let managers = tree(&cluster(), &ClusterWalk::default(), NodeFilter::M);
        assert!(managers.contains("sup:5") && !managers.contains("127.0.0.1"));
    }

    #[test]
    fn servers_alone_are_a_list() {
        let mut root = cluster();
        if let Some(sup) = root.children.nodes.get_mut(1) {
            sup.children.nodes[0].about = Some(Ok(RoleAnswer { role: "server", version: Some("v5".into()) }));
        }
        let listed = servers(&root, &ClusterWalk::default());
        let expected = "127.0.0.1:3      server  -   away: no connection (refused)\n[2001:db8::1]:4  server  v5  serving\n";
        assert_eq!(listed, expected);
    }

    #[test]
    fn a_node_that_its_manager_does_not_select_is_not_serving() {
        let mut root = cluster();
        root.children.nodes[0].about = None;
        root.children.nodes[0].location.pending = true;
        let listed = servers(&root, &ClusterWalk::default());
        assert!(listed.starts_with("127.0.0.1:3      server  not serving\n"), "{listed}");
    }

    #[test]
    fn json_says_the_same() {
        let walk = ClusterWalk { path: Some("/f".into()), ..ClusterWalk::default() };
        let all = json(&cluster(), &walk, NodeFilter::All);
        assert_eq!(all["below"][1]["below"][0]["has"], true);
        assert_eq!(all["below"][0]["reachable"], false);
        let states = [0, 1, 3].map(|index| all["below"][index]["state"].clone());
        assert_eq!(states, ["away", "serving", "serving"]);
        assert!(all["below"][0]["error"].as_str().is_some_and(|why| why.contains("refused")));
        assert_eq!(json(&cluster(), &walk, NodeFilter::S).as_array().map(Vec::len), Some(2));
    }
}
