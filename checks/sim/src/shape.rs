//! The tree as seen from its root, and checks that it is one.
//!
//! Both sides of each connection are compared, because one of them may be stale.

use std::collections::{HashSet, VecDeque};

use cluster::CELL_SLOTS;

use crate::host::{HostKind, SimHost};
use crate::network::Network;

/// A valid tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Nodes below the manager.
    pub nodes: usize,
    /// Levels below the manager.
    pub height: usize,
    /// The number of children of the fullest cell.
    pub widest: usize,
}

impl Shape {
    /// Returns the tree of a manager: from the cells down, each child confirmed from its own side.
    ///
    /// # Errors
    ///
    /// The violation of the tree: a child with two parents in this tree, a child that does not
    /// confirm its parent, more than 64 children, or a running node outside the tree.
    pub(crate) fn of(hosts: &[SimHost], network: &Network, manager: usize) -> Result<Self, String> {
        let children = |parent: usize| {
            let child = |link: cluster::tree::ConnectionId| {
                let end = network.link(link.0 as u32).ends[0];
                let child = end.host as usize;
                let confirmed =
                    end.epoch == hosts[child].epoch && hosts[child].parent_links().contains(&end.link);
                ShapeChild { host: child, confirmed, inner: hosts[child].kind.is_supervisor() }
            };
            hosts[parent].child_links().into_iter().map(child).collect()
        };
        let (shape, seen) = tree(manager, children)?;
        let is_up = |host: &SimHost| {
            host.machine.is_some()
                && !host.kind.is_manager()
                && !matches!(host.kind, HostKind::Flood | HostKind::Stranger)
        };
        let up = hosts.iter().filter(|host| is_up(host)).count();
        if shape.nodes == up {
            return Ok(shape);
        }
        let missing = hosts.iter().enumerate().find(|(index, host)| is_up(host) && !seen.contains(index));
        Err(format!(
            "{} of {up} nodes are in the tree; missing e.g. {:?}",
            shape.nodes,
            missing.map(|(index, host)| (index, host.kind))
        ))
    }
}

/// A child in the view of its parent.
struct ShapeChild {
    host: usize,
    /// The child confirms the parent.
    confirmed: bool,
    inner: bool,
}

/// Returns the tree from `root` down, and its nodes.
fn tree(root: usize, children: impl Fn(usize) -> Vec<ShapeChild>) -> Result<(Shape, HashSet<usize>), String> {
    let mut seen = HashSet::from([root]);
    let mut open = VecDeque::from([(root, 0)]);
    let mut shape = Shape { nodes: 0, height: 0, widest: 0 };
    while let Some((parent, level)) = open.pop_front() {
        let children = children(parent);
        if children.len() > CELL_SLOTS {
            return Err(format!("host {parent} has {} children", children.len()));
        }
        shape.widest = shape.widest.max(children.len());
        for ShapeChild { host, confirmed, inner } in children {
            if !confirmed {
                return Err(format!("host {parent} has {host} as a child, but not the other way round"));
            }
            if !seen.insert(host) {
                return Err(format!("host {host} is in two places"));
            }
            shape.nodes += 1;
            shape.height = shape.height.max(level + 1);
            if inner {
                open.push_back((host, level + 1));
            }
        }
    }
    Ok((shape, seen))
}

/// Returns the least number of levels of a tree of these supervisors and servers.
pub fn least_height(supervisors: usize, servers: usize) -> Option<usize> {
    let cell = 64;
    if supervisors + servers <= cell {
        return Some(1);
    }
    let first = supervisors.min(cell);
    let second = supervisors - first;
    if second + servers <= (cell - first) + cell * first {
        return Some(2);
    }
    (first == cell && servers <= cell * cell - second + cell * second).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tree below 0. Inner nodes have numbers below 10, and those in `strangers` do not
    /// confirm their parent.
    fn below(cells: &[(usize, &[usize])], strangers: &[usize]) -> Result<Shape, String> {
        let children = |parent: usize| {
            let cell = cells.iter().find(|(of, _)| *of == parent).map_or(&[][..], |(_, cell)| *cell);
            let child = |host: &usize| ShapeChild {
                host: *host,
                confirmed: !strangers.contains(host),
                inner: *host < 10,
            };
            cell.iter().map(child).collect()
        };
        tree(0, children).map(|(shape, _)| shape)
    }

    #[test]
    fn what_is_a_tree_and_what_is_none() {
        let shape = Shape { nodes: 5, height: 2, widest: 3 };
        assert_eq!(below(&[(0, &[1, 2]), (1, &[10, 11, 12])], &[]), Ok(shape));
        let error = |cells: &[(usize, &[usize])], strangers| below(cells, strangers).unwrap_err();
        assert_eq!(error(&[(0, &[1, 2]), (1, &[10]), (2, &[10])], &[]), "host 10 is in two places");
        assert_eq!(error(&[(0, &[1]), (1, &[2]), (2, &[1])], &[]), "host 1 is in two places", "a loop");
        assert!(error(&[(0, &[10, 11])], &[11]).ends_with("not the other way round"));
        let many: Vec<usize> = (10..75).collect();
        assert_eq!(error(&[(0, &many)], &[]), "host 0 has 65 children");
    }

    #[test]
    fn heights_of_full_trees() {
        assert_eq!(least_height(0, 64), Some(1));
        assert_eq!(least_height(0, 65), None);
        assert_eq!(least_height(1, 64), Some(2));
        assert_eq!(least_height(14, 50 + 14 * 64), Some(2));
        assert_eq!(least_height(14, 51 + 14 * 64), None);
        assert_eq!(least_height(64, 4096), Some(2));
        assert_eq!(least_height(65, 4096), Some(3));
        assert_eq!(least_height(64 + 94, 10_000), Some(3));
    }
}
