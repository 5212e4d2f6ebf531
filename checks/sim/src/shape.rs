//! The tree that the nodes form, as seen from its root; and whether it is one.

use std::collections::{HashMap, VecDeque};

use crate::host::{Kind, Machine};
use crate::world::World;

/// A tree, or what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Nodes below the manager.
    pub nodes: usize,
    /// Levels below the manager.
    pub height: usize,
    /// Children of the fullest cell.
    pub widest: usize,
}

impl World {
    /// The tree of a manager: from the cells down, each child confirmed from its own side.
    ///
    /// # Errors
    /// What is no tree: a child with two parents in this tree, a child that knows nothing of its parent, more than 64
    /// children, a node that is up and not in it.
    pub fn shape(&self, manager: usize) -> Result<Shape, String> {
        let mut depth: HashMap<usize, usize> = HashMap::from([(manager, 0)]);
        let mut open = VecDeque::from([manager]);
        let mut shape = Shape { nodes: 0, height: 0, widest: 0 };
        while let Some(parent) = open.pop_front() {
            let children = self.hosts[parent].child_links();
            if children.len() > 64 {
                return Err(format!("host {parent} has {} children", children.len()));
            }
            shape.widest = shape.widest.max(children.len());
            let level = depth.get(&parent).copied().unwrap_or_default() + 1;
            for link in children {
                let ends = self.links[link.0 as usize].ends;
                let child = ends[0].host as usize;
                let confirmed = ends[0].epoch == self.hosts[child].epoch
                    && self.hosts[child].parent_links().contains(&ends[0].link);
                if !confirmed {
                    return Err(format!("host {parent} has {child} as a child, but not the other way round"));
                }
                if depth.insert(child, level).is_some() {
                    return Err(format!("host {child} is in two places"));
                }
                shape.nodes += 1;
                shape.height = shape.height.max(level);
                if self.hosts[child].kind.is_supervisor() {
                    open.push_back(child);
                }
            }
        }
        let is_up = |host: &crate::host::Host| {
            host.machine.is_some() && !host.kind.is_manager() && host.kind != Kind::Flood
        };
        let up = self.hosts.iter().filter(|host| is_up(host)).count();
        if shape.nodes == up {
            return Ok(shape);
        }
        let missing =
            self.hosts.iter().enumerate().find(|(index, host)| is_up(host) && !depth.contains_key(index));
        Err(format!(
            "{} of {up} nodes are in the tree; missing e.g. {:?}",
            shape.nodes,
            missing.map(|(index, host)| (index, host.kind))
        ))
    }

    /// Whether a manager of our own remembers more than there is: nodes that wait while all have a place, connections of
    /// nobody, cells of supervisors that there never were.
    ///
    /// # Errors
    /// What there is too much of.
    pub fn remembers_too_much(&self, manager: usize) -> Result<(), String> {
        let Some(Machine::Own(own)) = &self.hosts[manager].machine else { return Ok(()) };
        let Some(members) = own.node.members() else { return Ok(()) };
        let supervisors = self.hosts.iter().filter(|host| host.kind.is_supervisor()).count();
        let (cells, waiting) = (members.directory().entries().len(), members.waiting());
        let (links, online) = (members.connections(), members.online().len());
        if cells > supervisors || links > online + waiting {
            return Err(format!("{cells} cells, {waiting} wait, {links} connections of {online} children"));
        }
        Ok(())
    }
}

/// Levels that a tree of so many supervisors and servers needs at least.
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
