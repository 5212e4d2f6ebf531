//! `scalla cluster`: the tree a running node belongs to, and orders for its nodes.

mod door;

use crate::admin::Which;
use crate::printer::{err, out};
use base::shown;
use clap::Subcommand;
use serde_json::Value;
use server::admin::{Request, ask};
use server::cluster::{CacheStatus, ChildStatus, NodeStatus, Order, SpaceStatus, Survey, show_age, survey};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Look at the cluster a running node belongs to, take nodes out of use and into it again.
#[derive(clap::Args, Debug)]
pub(crate) struct Cluster {
    #[command(flatten)]
    which: Which,
    /// Answer as a JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Draw the tree: roles, addresses, versions, state, age, load, space; caches of those that send clients on.
    Status {
        /// Only what the running node knows itself, without asking others.
        #[arg(long)]
        here: bool,
    },
    /// Give a node no clients at all, also over its restart.
    Suspend(Node),
    /// Give it clients again.
    Resume(Node),
    /// Send clients elsewhere, readers in the middle of their file too; those that cannot go stay until they are done.
    Drain(Drain),
    /// Send new clients there again.
    Undrain(Node),
}

/// Which node.
#[derive(clap::Args, Debug)]
struct Node {
    /// A node below the running one: its address, host, id or slot (`#7`). Without it, or `self`: the running node.
    node: Option<String>,
}

/// Which node to empty, and how long that may take.
#[derive(clap::Args, Debug)]
struct Drain {
    #[command(flatten)]
    node: Node,
    /// Wait until no file is open at the running node any more, so long at most: `90`, `10m`, `2h`.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "node")]
    wait: Option<Duration>,
}

/// Between looks at what is still open.
const LOOK: Duration = Duration::from_millis(500);

/// A time as configuration files have it.
fn time(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let unit = units.into_iter().find_map(|(letter, seconds)| Some((text.strip_suffix(letter)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1));
    let count: Option<u64> = number.parse().ok();
    let time = count.and_then(|count| count.checked_mul(seconds)).map(Duration::from_secs);
    time.ok_or_else(|| "it is no time, as 90, 10m or 2h".to_owned())
}

/// Waits until no file is open any more; `false` when some are after `limit`.
fn emptied(socket: &Path, limit: Duration) -> anyhow::Result<bool> {
    let until = Instant::now() + limit;
    loop {
        let status = ask(socket, &Request::Status {})?;
        let figure = |name: &str| status[name].as_u64().unwrap_or_default();
        let (open, written) = (figure("open_files"), figure("open_for_writing"));
        if open == 0 {
            return Ok(true);
        }
        if Instant::now() >= until {
            err().line(format_args!("{open} files are still open, {written} of them for writing"));
            return Ok(false);
        }
        std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
}

impl Cluster {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = self.which.socket()?;
        let mut wait = None;
        let (order, node) = match self.command {
            Command::Status { here } => {
                let own = serde_json::from_value(ask(&socket, &Request::ClusterStatus {})?)?;
                let tree =
                    if here { Survey { root: own, missing: Vec::new() } } else { survey(own, &door::ask) };
                show(&tree, self.json)?;
                return Ok(ExitCode::SUCCESS);
            }
            Command::Suspend(node) => (Order::Suspend, node),
            Command::Resume(node) => (Order::Resume, node),
            Command::Drain(drain) => {
                wait = drain.wait;
                (Order::Drain, drain.node)
            }
            Command::Undrain(node) => (Order::Undrain, node),
        };
        let answer = ask(&socket, &Request::ClusterOrder { order, node: node.node })?;
        let word = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        if self.json {
            out().json(&answer);
        } else {
            out().line(format_args!("{} {}", word("node"), word("state")));
        }
        match wait {
            Some(limit) if !emptied(&socket, limit)? => Ok(ExitCode::FAILURE),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

fn show(tree: &Survey, json: bool) -> anyhow::Result<()> {
    if json {
        let mut value: Value = serde_json::to_value(&tree.root)?;
        value["missing"] = tree.missing.clone().into();
        out().json(&value);
        return Ok(());
    }
    out().lines(draw(&tree.root));
    for missing in &tree.missing {
        err().line(format_args!("not seen: {missing}"));
    }
    Ok(())
}

/// A line of the tree, in columns.
type Row = [String; COLUMNS];
const COLUMNS: usize = 8;
/// The column of the names of sites.
const SITE: usize = 1;
const HEAD: [&str; COLUMNS] = ["NODE", "SITE", "VERSION", "STATE", "AGE", "LOAD", "FREE", "USED"];

/// The tree as text.
fn draw(root: &NodeStatus) -> String {
    let mut rows: Vec<Row> = vec![HEAD.map(str::to_owned)];
    let mut notes: Vec<(usize, String)> = Vec::new();
    let nodes =
        root.cluster_address.as_deref().map(|address| format!(", nodes at {address}")).unwrap_or_default();
    // Where a real node serves clients is not known from below.
    let clients = match root.data_port {
        0 => format!("{}{nodes}", root.role),
        port => {
            format!("{} {}:{port}{nodes}", root.role, if root.host.is_empty() { "?" } else { &root.host })
        }
    };
    rows.push([
        clients,
        root.site.clone().unwrap_or_default(),
        root.version.clone(),
        root.state.clone(),
        age(root.uptime_seconds),
        String::new(),
        free(&root.space),
        used(&root.space),
    ]);
    inner(root, "", &mut rows, &mut notes);
    branches(root, "", &mut rows, &mut notes);
    if !root.parents.is_empty() {
        notes.push((rows.len(), format!("below {}", root.parents.join(", "))));
    }
    for sought in &root.sought {
        notes.push((rows.len(), format!("looks for {sought}")));
    }
    // Nodes choose what they are called.
    let texts = rows.iter_mut().flatten().chain(notes.iter_mut().map(|(_, note)| note));
    texts.for_each(|text| *text = shown(text.as_str()).to_string());
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // Most clusters have one site, which nobody named.
    let sites = rows.iter().skip(1).any(|row| !row[SITE].is_empty());
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        let shown = row.iter().zip(widths).enumerate().filter(|(column, _)| sites || *column != SITE);
        for (_, (cell, width)) in shown {
            // Writing to a text cannot fail.
            write!(line, "{cell:width$}  ").ok();
        }
        text.push_str(line.trim_end());
        text.push('\n');
        for (_, note) in notes.iter().filter(|(after, _)| *after == number + 1) {
            text.push_str(note);
            text.push('\n');
        }
    }
    text
}

/// What a node with children says of itself beyond the columns.
fn inner(node: &NodeStatus, lead: &str, rows: &mut [Row], notes: &mut Vec<(usize, String)>) {
    let bar = if node.children.is_empty() { " " } else { "│" };
    if let Some(CacheStatus { locations, hits, misses, hit_rate, queries, .. }) = node.cache {
        let percent = (hit_rate * 100.0).round();
        let text = format!(
            "{lead}{bar}  {locations} locations known, {percent}% of {} look-ups hit, {queries} queries under way",
            hits + misses
        );
        notes.push((rows.len(), text));
    }
    if node.waiting > 0 {
        notes.push((rows.len(), format!("{lead}{bar}  {} nodes wait for a place", node.waiting)));
    }
}

fn branches(node: &NodeStatus, lead: &str, rows: &mut Vec<Row>, notes: &mut Vec<(usize, String)>) {
    for (number, child) in node.children.iter().enumerate() {
        let last = number + 1 == node.children.len();
        rows.push(row(child, &format!("{lead}{}", if last { "└─ " } else { "├─ " })));
        if let Some(below) = &child.node {
            let lead = format!("{lead}{}", if last { "   " } else { "│  " });
            inner(below, &lead, rows, notes);
            branches(below, &lead, rows, notes);
        }
    }
}

fn row(child: &ChildStatus, lead: &str) -> Row {
    let told =
        child.age_seconds.is_some() && child.version.starts_with("scalla ") || child.load.highest() > 0;
    [
        format!("{lead}{} {}", child.role, child.address),
        child.site.clone().unwrap_or_default(),
        child.version.clone(),
        child.state.clone(),
        age(child.age_seconds),
        if told { format!("{}%", child.load.highest()) } else { String::new() },
        free(&child.space),
        used(&child.space),
    ]
}

fn age(seconds: Option<u64>) -> String {
    seconds.map(|seconds| show_age(Duration::from_secs(seconds))).unwrap_or_default()
}

/// Free space for people, and what is needed where it is too little; nothing where it was not told.
fn free(space: &SpaceStatus) -> String {
    if (space.free_mb, space.total_mb) == (0, 0) {
        return String::new();
    }
    let free = megabytes(space.free_mb);
    if space.free_mb < space.minimum_mb {
        format!("{free} (full, needs {})", megabytes(space.minimum_mb))
    } else {
        free
    }
}

fn megabytes(number: u32) -> String {
    match number {
        0..10_240 => format!("{number} MB"),
        10_240..10_485_760 => format!("{} GB", number / 1024),
        _ => format!("{} TB", number / (1024 * 1024)),
    }
}

fn used(space: &SpaceStatus) -> String {
    if space.total_mb == 0 { String::new() } else { format!("{}%", space.used_percent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(role: &str, address: &str, state: &str) -> ChildStatus {
        ChildStatus {
            role: role.to_owned(),
            address: address.to_owned(),
            version: "scalla v1.0.0".to_owned(),
            state: state.to_owned(),
            age_seconds: Some(75),
            space: SpaceStatus { total_mb: 1000, free_mb: 500, minimum_mb: 10, used_percent: 50 },
            ..ChildStatus::default()
        }
    }

    #[test]
    fn what_nodes_are_called_is_escaped() {
        let mut server = child("server", "c:1", "serving");
        server.site = Some("a\n\u{1b}[2J".to_owned());
        server.version = "\u{85}\u{202e}".to_owned();
        let root = NodeStatus {
            role: "manager".to_owned(),
            children: vec![server],
            parents: vec!["p\r:1213".to_owned()],
            ..NodeStatus::default()
        };
        let drawn = draw(&root);
        assert!(!drawn.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'), "{drawn:?}");
        for text in ["a\\n\\u001b[2J", "\\u0085\\u202e", "below p\\r:1213\n"] {
            assert!(drawn.contains(text), "{drawn}");
        }
        assert_eq!(drawn.lines().count(), 4);
    }

    #[test]
    fn a_tree_is_drawn_with_aligned_columns() {
        let below = NodeStatus {
            role: "supervisor".to_owned(),
            children: vec![child("server", "c:1", "draining")],
            ..NodeStatus::default()
        };
        let mut supervisor = child("supervisor", "s:1094", "serving");
        supervisor.node = Some(Box::new(below));
        let mut real = child("server", "[::1]:1095", "serving");
        real.version = "cms 3".to_owned();
        real.space.free_mb = 5;
        let root = NodeStatus {
            role: "manager".to_owned(),
            host: "m".to_owned(),
            data_port: 1094,
            cluster_address: Some("m:1213".to_owned()),
            version: "scalla v1.0.0".to_owned(),
            state: "serving".to_owned(),
            uptime_seconds: Some(5),
            cache: Some(CacheStatus {
                locations: 3,
                hits: 3,
                misses: 1,
                hit_rate: 0.75,
                ..CacheStatus::default()
            }),
            children: vec![supervisor, real],
            ..NodeStatus::default()
        };
        let expected = "\
NODE                            VERSION        STATE     AGE    LOAD  FREE                     USED
manager m:1094, nodes at m:1213 scalla v1.0.0  serving   5s
│  3 locations known, 75% of 4 look-ups hit, 0 queries under way
├─ supervisor s:1094            scalla v1.0.0  serving   1m15s  0%    500 MB                   50%
│  └─ server c:1                scalla v1.0.0  draining  1m15s  0%    500 MB                   50%
└─ server [::1]:1095            cms 3          serving   1m15s        5 MB (full, needs 10 MB)  50%
";
        let drawn: Vec<String> = draw(&root).lines().map(str::to_owned).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (drawn, expected) in drawn.iter().zip(expected.lines()) {
            assert_eq!(words(drawn), words(expected));
        }
        assert_eq!(drawn.len(), expected.lines().count());
        let column = |line: &str| {
            line.chars().collect::<Vec<_>>().windows(6).position(|w| w.iter().collect::<String>() == "scalla")
        };
        assert_eq!(column(&drawn[1]), column(&drawn[4]), "columns are aligned");
    }
}
