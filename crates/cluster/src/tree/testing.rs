//! Fixtures of the tests of the tree.

use std::time::Duration;

use super::address::Address;
use super::identity::{NodeId, NodeIdentity};
use super::member::{ClusterMember, Condition, LoadReport, SpaceReport};
use wire::cms::Extensions;
use wire::cms::login::Role;

/// Returns a connected child with this name.
pub(crate) fn member(name: &str, role: Role) -> ClusterMember {
    ClusterMember {
        identity: NodeIdentity {
            id: NodeId::compose(if role.has_children() { 'u' } else { 's' }, name, None, "cluster"),
            ip: [10, 0, 0, 1].into(),
            data_port: 1094,
        },
        role,
        address: Address::new(name, 1213),
        data: Address::new(name, 1094),
        paths: String::new(),
        site: None,
        host: String::new(),
        software: None,
        instance: None,
        version: 3,
        extensions: Extensions::ALL,
        condition: Condition::default(),
        space: SpaceReport::default(),
        sums: None,
        share: 0,
        load: LoadReport::default(),
        link: Some(super::connection_id::ConnectionId(0)),
        since: Duration::ZERO,
        heard: Duration::ZERO,
        pinged: Duration::ZERO,
        pings: 0,
        service: Default::default(),
    }
}
