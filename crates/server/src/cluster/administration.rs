//! Orders of the administrator over the admin socket: suspend, resume, drain or undrain this node
//! or one below it.

use super::node_state::NodeState;
use super::status::{ChildStatus, NodeStatus};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use storage::PrivateDirectory;

/// An order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeOrder {
    /// Accept no clients.
    Suspend,
    /// Accept clients again.
    Resume,
    /// Accept no clients that other nodes can serve: readers are redirected, the others stay until
    /// they are finished.
    Drain,
    /// Accept new clients again.
    Undrain,
}

impl NodeOrder {
    /// Reports whether the order takes a node out of use.
    #[must_use]
    pub const fn takes_out(self) -> bool {
        matches!(self, Self::Suspend | Self::Drain)
    }

    /// Returns the state of a node after the order, as shown in the status of the cluster.
    #[must_use]
    pub const fn state(self) -> NodeState {
        match self {
            Self::Suspend => NodeState::Suspended,
            Self::Drain => NodeState::Draining,
            Self::Resume | Self::Undrain => NodeState::Serving,
        }
    }

    /// Returns the name of the file that keeps the order over a restart.
    const fn file(self) -> &'static str {
        match self {
            Self::Suspend | Self::Resume => "suspended",
            Self::Drain | Self::Undrain => "draining",
        }
    }

    /// Records the order in the admin directory `admin`, so that a node that was taken out of use
    /// stays so after a restart.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn keep(self, admin: &Path) -> io::Result<()> {
        let directory = PrivateDirectory::create(&admin.join(".cluster"))?;
        if self.takes_out() {
            directory.replace(self.file(), b"ordered by the administrator\n").map(drop)
        } else {
            directory.remove(self.file())
        }
    }

    /// Returns the recorded orders.
    pub(crate) fn kept(admin: &Path) -> impl Iterator<Item = Self> {
        let directory = admin.join(".cluster");
        [Self::Suspend, Self::Drain]
            .into_iter()
            .filter(move |order| super::state_file::read(&directory.join(order.file())).is_some())
    }
}

/// The target of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OrderTarget {
    /// This node.
    Own,
    /// A child, by its slot.
    Child(u8, String),
}

impl NodeStatus {
    /// Finds the node with the name given by the administrator: this node or one of its children.
    ///
    /// # Errors
    /// The error message if no node matches, or several do.
    pub(super) fn find(&self, name: &str) -> Result<OrderTarget, String> {
        let status = self;
        // The host name alone also names other nodes on that host.
        let own = name == "self"
            || name == status.id
            || short(&status.id) == name
            || status.name.as_deref() == Some(name);
        let exact: Vec<&ChildStatus> = status.children.iter().filter(|child| child.is_called(name)).collect();
        let by_host =
            |child: &&ChildStatus| child.host.eq_ignore_ascii_case(name) || host_of(&child.address) == name;
        let hosts: Vec<&ChildStatus> = status.children.iter().filter(by_host).collect();
        let found = if exact.is_empty() { hosts } else { exact };
        match found.as_slice() {
            _ if own => Ok(OrderTarget::Own),
            [one] => Ok(OrderTarget::Child(one.slot, one.address.clone())),
            [] if status.host.eq_ignore_ascii_case(name) => Ok(OrderTarget::Own),
            [] => {
                let names: Vec<&str> = status.children.iter().map(|child| child.address.as_str()).collect();
                let above = status.parents.iter().chain(&status.managers).next();
                let list = match (names.is_empty(), above) {
                    (false, _) => format!("it has {}", names.join(", ")),
                    (true, Some(above)) => {
                        format!("it has no children: order it on the node's manager ({above})")
                    }
                    (true, None) => "it has no children".to_owned(),
                };
                Err(format!("{name} is no node that this one ({}) can give orders to; {list}", status.role))
            }
            several => {
                let names: Vec<&str> = several.iter().map(|child| child.address.as_str()).collect();
                Err(format!("{name} may be {}; name one of them", names.join(" or ")))
            }
        }
    }
}

impl ChildStatus {
    /// Reports whether this name identifies only this child.
    fn is_called(&self, name: &str) -> bool {
        self.address == name
            || self.id == name
            || short(&self.id) == name
            || self.cluster_address.as_deref() == Some(name)
            || self.name.as_deref() == Some(name)
            || name.strip_prefix('#').unwrap_or(name) == self.slot.to_string()
    }
}

/// Returns the part of a system id that differs between nodes.
pub fn short(id: &str) -> &str {
    let id = id.rsplit_once(' ').map_or(id, |(id, _)| id);
    id.split_once('-').map_or(id, |(_, name)| name)
}

fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_several_names() {
        let child = ChildStatus {
            slot: 7,
            id: "*s-disk1-00ff 1213redir".to_owned(),
            address: "disk1.org:1094".to_owned(),
            name: Some("first".to_owned()),
            ..ChildStatus::default()
        };
        for name in ["disk1.org:1094", "*s-disk1-00ff 1213redir", "disk1-00ff", "#7", "7", "first"] {
            assert!(child.is_called(name), "{name}");
        }
        for name in ["disk1.org", "8", "#8", "07", "#", "s-disk1-00ff", ""] {
            assert!(!child.is_called(name), "{name}");
        }
        assert_eq!(host_of("[::1]:1094"), "::1");
        assert_eq!(short("m-man@vm 1213vm"), "man@vm");
    }

    #[test]
    fn a_name_that_means_several_nodes_is_refused() {
        let child = |slot, name: &str| ChildStatus {
            slot,
            name: Some(name.to_owned()),
            address: format!("disk{slot}:1094"),
            ..ChildStatus::default()
        };
        let status = NodeStatus {
            name: Some("man".to_owned()),
            children: vec![child(1, "a"), child(2, "b"), child(3, "2")],
            ..NodeStatus::default()
        };
        assert_eq!(status.find("b"), Ok(OrderTarget::Child(2, "disk2:1094".to_owned())));
        assert_eq!(status.find("3"), Ok(OrderTarget::Child(3, "disk3:1094".to_owned())));
        assert_eq!(status.find("man"), Ok(OrderTarget::Own));
        // The slot of one child is the name of the other.
        assert_eq!(status.find("2"), Err("2 may be disk2:1094 or disk3:1094; name one of them".to_owned()));
    }

    #[test]
    fn what_is_out_of_use_stays_so() {
        let admin = std::env::temp_dir().join(format!("scalla-orders-{}", std::process::id()));
        NodeOrder::Resume.keep(&admin).unwrap();
        assert_eq!(NodeOrder::kept(&admin).count(), 0);
        NodeOrder::Drain.keep(&admin).unwrap();
        NodeOrder::Suspend.keep(&admin).unwrap();
        assert_eq!(NodeOrder::kept(&admin).collect::<Vec<_>>(), [NodeOrder::Suspend, NodeOrder::Drain]);
        NodeOrder::Resume.keep(&admin).unwrap();
        assert_eq!(NodeOrder::kept(&admin).collect::<Vec<_>>(), [NodeOrder::Drain]);
        std::fs::remove_dir_all(&admin).unwrap();
    }
}
