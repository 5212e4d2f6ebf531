//! What tests of the tree share.

use std::time::Duration;

use super::address::Address;
use super::identity::{Identity, SystemId};
use super::member::{Condition, Load, Member, Space};
use wire::cms::Extensions;
use wire::cms::login::Role;

/// A connected child of this name, without a connection's name.
pub(crate) fn member(name: &str, role: Role) -> Member {
    Member {
        identity: Identity {
            id: SystemId::compose(if role.has_children() { 'u' } else { 's' }, name, None, "cluster"),
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
        space: Space::default(),
        sums: None,
        share: 0,
        load: Load::default(),
        link: Some(super::link::LinkId(0)),
        since: Duration::ZERO,
        heard: Duration::ZERO,
        pinged: Duration::ZERO,
        pings: 0,
        service: Default::default(),
    }
}
