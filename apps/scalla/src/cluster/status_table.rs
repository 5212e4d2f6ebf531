//! The table of `scalla cluster status`: the tree of nodes, one per line.

use base::shown;
use server::cluster::{ChildStatus, LocationCacheStatus, NodeStatus, SpaceStatus, show_age};
use std::fmt::Write;
use std::time::Duration;

/// A column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StatusColumn {
    Node,
    Slot,
    Name,
    Site,
    State,
    Age,
    Load,
    Inventory,
    Free,
    Used,
    Version,
    Id,
    Exports,
}

/// All columns in order, with their titles.
const COLUMNS: [(StatusColumn, &str); 13] = [
    (StatusColumn::Node, "NODE"),
    (StatusColumn::Slot, "SLOT"),
    (StatusColumn::Name, "NAME"),
    (StatusColumn::Site, "SITE"),
    (StatusColumn::State, "STATE"),
    (StatusColumn::Age, "AGE"),
    (StatusColumn::Load, "LOAD"),
    (StatusColumn::Inventory, "INVENTORY"),
    (StatusColumn::Free, "FREE"),
    (StatusColumn::Used, "USED"),
    (StatusColumn::Version, "VERSION"),
    (StatusColumn::Id, "ID"),
    (StatusColumn::Exports, "EXPORTS"),
];

impl StatusColumn {
    /// Reports whether the column is shown only in the wide table.
    const fn is_wide(self) -> bool {
        matches!(self, Self::Version | Self::Id | Self::Exports)
    }

    /// Reports whether the column is omitted if it is empty in all lines.
    const fn is_optional(self) -> bool {
        matches!(self, Self::Name | Self::Site | Self::Inventory)
    }
}

/// A line of the table.
type Row = [String; COLUMNS.len()];

/// The rows added so far, and the notes after them.
#[derive(Default)]
struct StatusTable {
    rows: Vec<Row>,
    /// Text that follows a row, with the number of rows above it.
    notes: Vec<(usize, String)>,
}

/// Formats the tree. `wide` adds version, id and exports.
pub(super) fn draw(root: &NodeStatus, wide: bool) -> String {
    let mut table = StatusTable::default();
    table.rows.push(COLUMNS.map(|(_, title)| title.to_owned()));
    table.rows.push(root_row(root));
    table.inner(root, "");
    table.branches(root, "");
    if !root.parents.is_empty() {
        table.note(format!("below {}", root.parents.join(", ")));
    }
    for sought in &root.sought {
        table.note(format!("looks for {sought}"));
    }
    table.text(wide)
}

impl StatusTable {
    fn note(&mut self, text: String) {
        self.notes.push((self.rows.len(), text));
    }

    /// Adds the figures of a node with children for which there is no column.
    fn inner(&mut self, node: &NodeStatus, lead: &str) {
        let bar = if node.children.is_empty() { " " } else { "│" };
        if let Some(LocationCacheStatus { locations, hits, misses, hit_rate, queries, held, .. }) = node.cache
        {
            let percent = (hit_rate * 100.0).round();
            let mut text = format!(
                "{lead}{bar}  {locations} locations known, {percent}% of {} look-ups hit, {queries} queries under way",
                hits + misses
            );
            if held > 0 {
                // Writing to a text cannot fail.
                write!(text, ", {held} requests wait for nodes that are away").ok();
            }
            self.note(text);
        }
        if node.waiting > 0 {
            self.note(format!("{lead}{bar}  {} nodes wait for a place", node.waiting));
        }
    }

    fn branches(&mut self, node: &NodeStatus, lead: &str) {
        for (number, child) in node.children.iter().enumerate() {
            let last = number + 1 == node.children.len();
            self.rows.push(row(child, &format!("{lead}{}", if last { "└─ " } else { "├─ " })));
            if let Some(below) = &child.node {
                let lead = format!("{lead}{}", if last { "   " } else { "│  " });
                self.inner(below, &lead);
                self.branches(below, &lead);
            }
        }
    }

    fn text(mut self, wide: bool) -> String {
        // Names are chosen by the nodes, so they are escaped.
        let texts = self.rows.iter_mut().flatten().chain(self.notes.iter_mut().map(|(_, note)| note));
        texts.for_each(|text| *text = shown(text.as_str()).to_string());
        let widths: Vec<usize> = (0..COLUMNS.len())
            .map(|at| {
                let (column, _) = COLUMNS[at];
                let cells = self.rows.iter().skip(1).map(|row| row[at].chars().count()).max().unwrap_or(0);
                let is_shown = (wide || !column.is_wide()) && (cells > 0 || !column.is_optional());
                if is_shown { cells.max(self.rows[0][at].chars().count()) } else { 0 }
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
                write!(line, "{cell:width$}  ").ok();
            }
            text.push_str(line.trim_end());
            text.push('\n');
            for (_, note) in self.notes.iter().filter(|(after, _)| *after == number + 1) {
                text.push_str(note);
                text.push('\n');
            }
        }
        text
    }
}

fn root_row(root: &NodeStatus) -> Row {
    let nodes =
        root.cluster_address.as_deref().map(|address| format!(", nodes at {address}")).unwrap_or_default();
    // The client port of an XRootD node is not known from below.
    let clients = match root.data_port {
        0 => format!("{}{nodes}", root.role),
        port => {
            format!("{} {}:{port}{nodes}", root.role, if root.host.is_empty() { "?" } else { &root.host })
        }
    };
    COLUMNS.map(|(column, _)| match column {
        StatusColumn::Node => clients.clone(),
        StatusColumn::Name => root.name.clone().unwrap_or_default(),
        StatusColumn::Site => root.site.clone().unwrap_or_default(),
        StatusColumn::State => root.state.clone(),
        StatusColumn::Age => age(root.uptime_seconds),
        StatusColumn::Free => free(&root.space),
        StatusColumn::Used => used(&root.space),
        StatusColumn::Version => root.version.clone(),
        StatusColumn::Id => root.id.clone(),
        StatusColumn::Slot | StatusColumn::Load | StatusColumn::Inventory | StatusColumn::Exports => {
            String::new()
        }
    })
}

fn row(child: &ChildStatus, lead: &str) -> Row {
    COLUMNS.map(|(column, _)| match column {
        StatusColumn::Node => format!("{lead}{} {}", child.role, child.address),
        StatusColumn::Slot => child.slot.to_string(),
        StatusColumn::Name => child.name.clone().unwrap_or_default(),
        StatusColumn::Site => child.site.clone().unwrap_or_default(),
        StatusColumn::State => state(child),
        StatusColumn::Age => age(child.age_seconds),
        StatusColumn::Load => load(child),
        StatusColumn::Inventory => inventory(child),
        StatusColumn::Free => free(&child.space),
        StatusColumn::Used => used(&child.space),
        StatusColumn::Version => child.version.clone(),
        StatusColumn::Id => child.id.clone(),
        StatusColumn::Exports => child.paths.join(", "),
    })
}

/// Formats the state, with the files that are still open at a draining node.
fn state(child: &ChildStatus) -> String {
    match &child.left {
        Some(left) if left.open_files > 0 => format!("{} ({left})", child.state),
        _ if child.newcomer => format!("{} (newcomer)", child.state),
        _ => child.state.clone(),
    }
}

/// Formats the state of the inventory, with the number of names in it.
fn inventory(child: &ChildStatus) -> String {
    match (&child.inventory, child.names) {
        (Some(state), Some(1)) => format!("{state}, 1 name"),
        (Some(state), Some(names)) => format!("{state}, {names} names"),
        (None, Some(names)) => format!("{names} names"),
        (state, _) => state.clone().unwrap_or_default(),
    }
}

/// Formats the highest load value of the node, if it reports its load.
fn load(child: &ChildStatus) -> String {
    let (percent, part) = child.load.highest();
    let is_reported = child.age_seconds.is_some() && child.version.starts_with("scalla ") || percent > 0;
    match percent {
        _ if !is_reported => String::new(),
        0 => "0%".to_owned(),
        _ => format!("{percent}% {part}"),
    }
}

fn age(seconds: Option<u64>) -> String {
    seconds.map(|seconds| show_age(Duration::from_secs(seconds))).unwrap_or_default()
}

/// Formats the free space, with the minimum if the free space is below it. Empty if unknown.
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
    use server::cluster::{Activity, LoadStatus};

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
        let drawn = draw(&root, true);
        assert!(!drawn.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'), "{drawn:?}");
        for text in ["a\\n\\u001b[2J", "\\u0085\\u202e", "below p\\r:1213\n"] {
            assert!(drawn.contains(text), "{drawn}");
        }
        assert_eq!(drawn.lines().count(), 4);
    }

    #[test]
    fn a_tree_is_drawn_with_aligned_columns() {
        let draining = ChildStatus {
            slot: 7,
            name: Some("disk1".to_owned()),
            load: LoadStatus { cpu: 93, disk: 99, ..LoadStatus::default() },
            inventory: Some("complete".to_owned()),
            left: Some(Activity { open_files: 1, open_for_writing: 0, clients: 2 }),
            ..child("server", "c:1", "draining")
        };
        let below =
            NodeStatus { role: "supervisor".to_owned(), children: vec![draining], ..NodeStatus::default() };
        let mut supervisor = child("supervisor", "s:1094", "serving");
        supervisor.node = Some(Box::new(below));
        let mut real = child("server", "[::1]:1095", "serving");
        real.newcomer = true;
        real.version = "cms 3".to_owned();
        real.space.free_mb = 5;
        let root = NodeStatus {
            role: "manager".to_owned(),
            host: "m".to_owned(),
            data_port: 1094,
            cluster_address: Some("m:1213".to_owned()),
            version: "scalla v1.0.0".to_owned(),
            name: Some("man".to_owned()),
            id: "m-id 1213m".to_owned(),
            state: "serving".to_owned(),
            uptime_seconds: Some(5),
            cache: Some(LocationCacheStatus {
                locations: 3,
                hits: 3,
                misses: 1,
                hit_rate: 0.75,
                held: 2,
                ..LocationCacheStatus::default()
            }),
            children: vec![supervisor, real],
            ..NodeStatus::default()
        };
        let expected = "\
NODE                             SLOT  NAME   STATE                               AGE    LOAD     INVENTORY  FREE                     USED
manager m:1094, nodes at m:1213        man    serving                             5s
│  3 locations known, 75% of 4 look-ups hit, 0 queries under way, 2 requests wait for nodes that are away
├─ supervisor s:1094             0            serving                             1m15s  0%                  500 MB                   50%
│  └─ server c:1                 7     disk1  draining (1 file open, 2 clients)  1m15s  93% cpu  complete   500 MB                   50%
└─ server [::1]:1095             0            serving (newcomer)                  1m15s                      5 MB (full, needs 10 MB)  50%
";
        let drawn: Vec<String> = draw(&root, false).lines().map(str::to_owned).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (drawn, expected) in drawn.iter().zip(expected.lines()) {
            assert_eq!(words(drawn), words(expected));
        }
        assert_eq!(drawn.len(), expected.lines().count());
        let column = |line: &str| {
            line.chars()
                .collect::<Vec<_>>()
                .windows(7)
                .position(|w| w.iter().collect::<String>() == "serving")
        };
        assert_eq!(column(&drawn[1]), column(&drawn[5]), "columns are aligned");
        let wide = draw(&root, true);
        assert!(
            wide.starts_with("NODE") && wide.contains("VERSION") && wide.contains("m-id 1213m"),
            "{wide}"
        );
    }
}
