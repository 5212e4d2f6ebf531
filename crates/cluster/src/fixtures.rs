//! Children and cells as fixtures for tests of several modules.
//!
//! They are shared because selection, tried lists and the resolver all need a filled cell.

use std::net::IpAddr;

use crate::cell::{Cell, CellChild, ChildKind, ChildState, Interface};
use crate::paths::ChildExport;
use crate::slots::Slot;

/// Returns a data server named `server<n>`, 10.0.0.n, that sends NOT_HERE replies.
pub(crate) fn server(number: u8) -> CellChild {
    CellChild {
        kind: ChildKind::Server,
        state: ChildState::SERVING,
        interfaces: vec![Interface {
            host: format!("server{number}").into(),
            ip: IpAddr::from([10, 0, 0, number]),
            private: false,
        }],
        port: 1094,
        cid: "site".into(),
        says_not_here: true,
        lists_all: true,
        takes_leases: true,
        digest: u64::from(number),
        id: 1000 + u64::from(number),
        min_free_mb: 100,
        share: None,
    }
}

/// Returns a cell of this number of servers, each with `w /` and 1000 MB free.
pub(crate) fn cell(servers: u8) -> Cell {
    let mut cell = Cell::new(&[]);
    let exports = ChildExport::parse_list(b"w /").expect("a list");
    for (slot, number) in Slot::all().zip(0..servers) {
        cell.join(slot, server(number), &exports);
        cell.meters().set_free_mb(slot, 1000);
    }
    cell
}
