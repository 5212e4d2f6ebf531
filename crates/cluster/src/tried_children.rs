//! The `tried` list of a client: children that it does not want to be redirected to again.
//!
//! A token `+<cid>` means every child of a site, any other token a host, with or without port. If
//! several children run on the host and the token has no port, the first mentions cannot show which
//! of them failed. Such children are only chosen as a fallback. They are avoided altogether once
//! the host was mentioned as often as it has children. (Real managers mask the first of them, tried
//! or not.) Source: cms protocol 3, section "avoid / tried".

use crate::cell::{Cell, CellChild};
use crate::slots::{Slot, SlotMask};

/// The maximum number of tokens of a tried list that are parsed; further ones are only counted.
pub const TRIED_MAX: usize = 128;

/// The meaning of a tried list in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TriedChildren {
    /// Children that must not be chosen.
    pub never: SlotMask,
    /// Children that are only chosen as a fallback.
    pub last: SlotMask,
    /// The number of tokens of the list.
    pub tokens: usize,
}

impl TriedChildren {
    /// Parses a comma separated list.
    pub fn parse(list: &[u8], cell: &Cell) -> Self {
        Self::parse_rounds(list, cell, 1)
    }

    /// Parses a list of a client that may try each of several children of a host this number of times.
    pub(crate) fn parse_rounds(list: &[u8], cell: &Cell, rounds: usize) -> Self {
        let list = list.strip_suffix(b"\0").unwrap_or(list);
        let tokens =
            || list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty());
        let mut avoided = Self { tokens: tokens().count(), ..Self::default() };
        let looked_at = || tokens().take(TRIED_MAX);
        for token in looked_at() {
            if let Some(cid) = token.strip_prefix(b"+") {
                let of_site = |child: &CellChild| child.cid.as_bytes() == cid;
                avoided.never |= matching(cell, of_site);
                continue;
            }
            let Some((host, port)) = std::str::from_utf8(token).ok().map(host_and_port) else { continue };
            let named =
                matching(cell, |child| names(child, host) && port.is_none_or(|port| port == child.port));
            let mentions = || looked_at().filter(|other| other.eq_ignore_ascii_case(token)).count();
            if named.len() <= 1 || named.len() * rounds <= mentions() {
                avoided.never |= named;
            } else {
                avoided.last |= named;
            }
        }
        avoided.last -= avoided.never;
        avoided
    }

    /// Removes `slot` from the sets, because another child has taken it.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.never.remove(slot);
        self.last.remove(slot);
    }
}

fn matching(cell: &Cell, wanted: impl Fn(&CellChild) -> bool) -> SlotMask {
    cell.children().filter(|(_, child)| wanted(child)).map(|(slot, _)| slot).collect()
}

fn names(child: &CellChild, host: &str) -> bool {
    let ip = base::written_ip(host);
    child
        .interfaces
        .iter()
        .any(|one| ip.map_or_else(|| one.host.eq_ignore_ascii_case(host), |ip| ip == one.ip.to_canonical()))
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address.
fn host_and_port(token: &str) -> (&str, Option<u16>) {
    let Some((host, port)) = token.rsplit_once(':') else { return (token, None) };
    match port.parse() {
        Ok(port) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (token, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{cell, server};

    fn mask(slots: &[u8]) -> SlotMask {
        slots.iter().filter_map(|slot| Slot::new(*slot)).collect()
    }

    #[test]
    fn hosts_addresses_and_ports() {
        let mut cell = cell(3);
        cell.change(Slot::new(2).unwrap(), |child| {
            child.interfaces[0].ip = "2001:db8::2".parse().unwrap();
        });
        let never = |list: &str| TriedChildren::parse(list.as_bytes(), &cell).never;
        assert_eq!(never("server1"), mask(&[1]));
        assert_eq!(never("SERVER1:1094,10.0.0.0"), mask(&[0, 1]));
        assert_eq!(never("server1:1095"), SlotMask::EMPTY);
        assert_eq!(never("[2001:db8::2]:1094"), mask(&[2]));
        assert_eq!(never("[2001:db8::2]"), mask(&[2]));
        assert_eq!(never("2001:db8::2"), mask(&[2]));
        assert_eq!(never("[::ffff:10.0.0.1]:1094\0"), mask(&[1]));
        assert_eq!(never("nobody,,\u{fe}"), SlotMask::EMPTY);
    }

    #[test]
    fn a_cluster_id_means_all_of_the_site() {
        let mut cell = cell(3);
        cell.change(Slot::new(1).unwrap(), |child| child.cid = "other".into());
        assert_eq!(TriedChildren::parse(b"+site", &cell).never, mask(&[0, 2]));
        assert_eq!(
            TriedChildren::parse(b"+other,x", &cell),
            TriedChildren { never: mask(&[1]), last: SlotMask::EMPTY, tokens: 2 }
        );
    }

    #[test]
    fn several_children_on_one_host() {
        let mut cell = cell(0);
        for slot in 0..3 {
            let mut child = server(7);
            child.port = 1094 + u16::from(slot);
            cell.join(Slot::new(slot).unwrap(), child, &[]);
        }
        let avoided = |list: &str| TriedChildren::parse(list.as_bytes(), &cell);
        assert_eq!(avoided("server7").last, mask(&[0, 1, 2]));
        assert_eq!(avoided("server7:1095").never, mask(&[1]));
        assert_eq!(
            avoided("server7:1095,server7"),
            TriedChildren { never: mask(&[1]), last: mask(&[0, 2]), tokens: 2 }
        );
        assert_eq!(avoided("server7,server7,server7").never, mask(&[0, 1, 2]));
    }

    #[test]
    fn a_list_without_end_is_cut() {
        let list = "x,".repeat(TRIED_MAX) + "server1";
        let avoided = TriedChildren::parse(list.as_bytes(), &cell(3));
        assert_eq!((avoided.never, avoided.tokens), (SlotMask::EMPTY, TRIED_MAX + 1));
    }
}
