//! The rules of `locate`: the list of children that have a file.
//!
//! There are three forms: `*`, every child; `*<path>`, every child that exports the path; `<path>`,
//! every child that has it. Children are listed from the highest slot down, as real managers do.
//! The rules are pure functions, so that readers use them, too. Source: cms protocol 3, section
//! "locate".

use crate::cache::CachedLocation;
use crate::cell::{Cell, CellChild, ChildKind, Interface};
use crate::paths::Rights;
use crate::request::{ClusterAnswer, ErrorCode, LocateFlags, LocatedChild};
use crate::selection::{Policy, WaitTimes};
use crate::slots::{Slot, SlotMask};

use super::effective_location::{EffectiveLocation, effective_location};
use super::select::{self, SelectDecision};

/// Returns the answer to a form that needs no query; `None` for a plain path.
pub(crate) fn listing(cell: &Cell, path: &[u8], options: &LocateFlags) -> Option<ClusterAnswer> {
    let prefix = path.strip_prefix(b"*")?;
    let (among, rights) = if prefix.is_empty() {
        (SlotMask::ALL, Rights::default())
    } else {
        let Some(rights) = cell.paths().rights(crate::paths::stripped(prefix)) else {
            return Some(not_exported());
        };
        (rights.read, rights)
    };
    let located = |slot: Slot| {
        let child = cell.child(slot)?;
        let faint = !child.state.connected || child.state.bad();
        let interface = interface(child, options).or_else(|| child.interfaces.first())?;
        Some(line(slot, child, interface, options, faint, rights.write.contains(slot)))
    };
    let list: Vec<LocatedChild> = among.iter().rev().filter_map(located).collect();
    if list.is_empty() {
        return Some(ClusterAnswer::error(ErrorCode::NO_ENTRY, "No servers are there."));
    }
    Some(ClusterAnswer::Located(list))
}

/// Judges a `locate` of a plain path by the known location.
pub(crate) fn judge(
    cell: &Cell,
    policy: &Policy,
    location: &CachedLocation,
    path: &[u8],
    options: &LocateFlags,
) -> SelectDecision {
    let waits = &policy.waits;
    let Some(rights) = cell.paths().rights(path) else {
        return select::not_exported(cell, waits, "No server exports this path.");
    };
    let EffectiveLocation { have: holders, pending, open } =
        effective_location(cell, policy, location, rights, false);
    if open && (holders.is_empty() || !options.asap) {
        return SelectDecision::Await;
    }
    if holders.is_empty() {
        let lost = (location.unasked & rights.read).meets(cell.expected());
        return if lost || !cell.quorum() {
            SelectDecision::Hold(ClusterAnswer::wait(waits.service))
        } else {
            SelectDecision::Answer(ClusterAnswer::error(ErrorCode::NO_ENTRY, "No server has the file."))
        };
    }
    match list(cell, waits, (holders, pending), rights, options) {
        Ok(list) if options.unique && policy.shared.is_some() => {
            SelectDecision::Answer(ClusterAnswer::Located(one_of_each(list)))
        }
        Ok(list) => SelectDecision::Answer(ClusterAnswer::Located(list)),
        // An unusable holder does not hide a child whose reply is outstanding.
        Err(_) if open => SelectDecision::Await,
        Err(answer @ ClusterAnswer::Wait(_)) => SelectDecision::Hold(answer),
        Err(answer) => SelectDecision::Answer(answer),
    }
}

/// Returns the holders that a client can use now, or an error if there are none. Real managers send
/// an empty list then, which clients treat as a malformed answer.
fn list(
    cell: &Cell,
    waits: &WaitTimes,
    (holders, pending): (SlotMask, SlotMask),
    rights: Rights,
    options: &LocateFlags,
) -> Result<Vec<LocatedChild>, ClusterAnswer> {
    let mut list = Vec::new();
    let mut away = false;
    for slot in holders.iter().rev() {
        let Some(child) = cell.child(slot) else { continue };
        if !child.state.connected || child.state.bad() {
            away = true;
            continue;
        }
        if let Some(interface) = interface(child, options) {
            let faint = pending.contains(slot);
            list.push(line(slot, child, interface, options, faint, rights.write.contains(slot)));
        }
    }
    if !list.is_empty() {
        return Ok(list);
    }
    let text = "No server that has the file can be reached over the client's network.";
    Err(if away {
        ClusterAnswer::wait(waits.service)
    } else {
        ClusterAnswer::error(ErrorCode::NET_UNREACHABLE, text)
    })
}

/// Reduces servers that see the same files to one; inner nodes have other servers below them.
fn one_of_each(list: Vec<LocatedChild>) -> Vec<LocatedChild> {
    let mut server = false;
    list.into_iter().filter(|line| line.inner || !std::mem::replace(&mut server, true)).collect()
}

fn interface<'a>(child: &'a CellChild, options: &LocateFlags) -> Option<&'a Interface> {
    let usable = child.interface(options.client);
    if options.all_nets { usable.or_else(|| child.interfaces.first()) } else { usable }
}

fn line(
    slot: Slot,
    child: &CellChild,
    interface: &Interface,
    options: &LocateFlags,
    faint: bool,
    write: bool,
) -> LocatedChild {
    let registered = !interface.host.starts_with('[') && interface.host.parse::<std::net::IpAddr>().is_err();
    LocatedChild {
        slot,
        inner: child.kind == ChildKind::Inner,
        faint,
        write,
        name: (options.names && registered).then(|| interface.host.clone()),
        ip: interface.ip,
        port: child.port,
    }
}

fn not_exported() -> ClusterAnswer {
    ClusterAnswer::error(ErrorCode::NO_ENTRY, "No server exports this path.")
}
