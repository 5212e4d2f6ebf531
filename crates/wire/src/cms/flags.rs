//! Flag words of the cms protocol, one type per field.
//!
//! Each field has its own type, because the same bit has a different meaning in each message. The
//! raw bit (0x20: the payload is an unpacked path) is not in any of these types, because the codec
//! sets and removes it.
//!
//! Source: cms protocol version 3, sections 1.5, 2.3.

use crate::newtypes::flags;

/// Bit of every modifier: the payload is one path with its NUL but without a length.
pub(super) const RAW: u8 = 0x20;

flags! {
    /// `mode` of a login (section 2.3).
    Mode(u32) {
        DIRECTOR = 0x0000_0001 "director", "a redirector; all other fields of the login are ignored";
        MANAGER = 0x0000_0002 "manager", "accepts children";
        PEER = 0x0000_0004 "peer", "a peer cluster";
        SERVER = 0x0000_0008 "server", "provides data; with manager, a supervisor";
        PROXY = 0x0000_0010 "proxy", "a proxy";
        SUBMAN = 0x0000_0020 "subman", "manager of a subcluster";
        BLREDIR = 0x0000_0040 "blredir", "understands a permanent redirect";
        SUSPEND = 0x0000_0100 "suspend", "accepts no clients now";
        NOSTAGE = 0x0000_0200 "nostage", "cannot stage";
        TRYING = 0x0000_0400 "trying", "found no free slot in six complete passes";
        DEBUG = 0x8000_0000 "debug", "tracing is on";
    }
}

impl Mode {
    const ZONE_SHIFT: u32 = 19;
    const ZONE_MASK: u32 = 0x00f8_0000;
    const SHARE_SHIFT: u32 = 24;
    const SHARE_MASK: u32 = 0x7f00_0000;

    /// Returns the time zone in hours east of UTC, from -15 to 15. For information only.
    #[must_use]
    pub const fn zone_hours(self) -> i8 {
        let [zone, ..] = ((self.0 & Self::ZONE_MASK) >> Self::ZONE_SHIFT).to_le_bytes();
        let hours = (zone & 0x0f).cast_signed();
        if zone & 0x10 != 0 { hours } else { -hours }
    }

    /// Returns the mode with the time zone `hours` east of UTC, limited to -15 to 15.
    #[must_use]
    pub const fn with_zone_hours(self, hours: i8) -> Self {
        let (east, hours) = (hours >= 0, hours.unsigned_abs());
        let hours = if hours > 15 { 15 } else { hours };
        let zone = (if east { 0x10 } else { 0 } | hours) as u32;
        Self(self.0 & !Self::ZONE_MASK | zone << Self::ZONE_SHIFT)
    }

    /// Returns the share of requests in percent that a meta manager should send here; 0 if
    /// unspecified.
    #[must_use]
    pub const fn share_percent(self) -> u8 {
        let [share, ..] = ((self.0 & Self::SHARE_MASK) >> Self::SHARE_SHIFT).to_le_bytes();
        share
    }

    /// Returns the mode with this share in percent, limited to 100.
    #[must_use]
    pub const fn with_share_percent(self, percent: u8) -> Self {
        let share = if percent > 100 { 100 } else { percent as u32 };
        Self(self.0 & !Self::SHARE_MASK | share << Self::SHARE_SHIFT)
    }
}

flags! {
    /// Modifier of `chmod`, `mkdir`, `mkpath`, `mv`, `prepdel`, `rm`, `rmdir` and `trunc`. The
    /// upper two bits count how many times the message was relayed.
    RelayModifier(u8) {
        NO_FORWARD = 0x10 "noforward", "mv, rm, rmdir: forget the path, do not relay";
    }
}

impl RelayModifier {
    const HOP: u8 = 0x40;
    const HOPS: u8 = 0xc0;
    /// Maximum number of times that a message is relayed.
    pub const HOPS_MAX: u8 = 3;

    /// Returns the number of times that the message was relayed, from 0 to 3.
    #[must_use]
    pub const fn hops(self) -> u8 {
        (self.0 & Self::HOPS) / Self::HOP
    }

    /// Returns the modifier for relaying the message. Returns `None` if it has been relayed the
    /// maximum number of times or must not be relayed. The limit ends loops between managers.
    #[must_use]
    pub const fn relayed(self) -> Option<Self> {
        if self.contains(Self::NO_FORWARD) {
            return None;
        }
        match self.0.checked_add(Self::HOP) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

flags! {
    /// Modifier of `have`.
    HaveModifier(u8) {
        ONLINE = 0x01 "online", "the file is online";
        PENDING = 0x02 "pending", "the file is being staged or written";
        DRAINING = 0x04 "draining", "only draining nodes have the file; Scalla nodes only";
    }
}

flags! {
    /// Modifier of `state`.
    StateModifier(u8) {
        REFRESH = 0x01 "refresh", "check the storage instead of a cache";
        NO_REPLY = 0x02 "noreply", "send no answer";
        DEFINITE = 0x04 "definite", "answer `nothere` for a missing file; Scalla nodes only, others relay the bit";
        META = 0x08 "meta", "the query comes from a meta manager";
    }
}

flags! {
    /// Options of `select`.
    SelectOptions(u32) {
        REFRESH = 0x0000_0001 "refresh", "query the nodes again";
        CREATE = 0x0000_0002 "create", "create a new file";
        ONLINE = 0x0000_0004 "online", "only nodes that need no staging";
        READ = 0x0000_0008 "read", "open for reading";
        TRUNC = 0x0000_0010 "trunc", "overwrite or create; overrides create";
        WRITE = 0x0000_0020 "write", "open for writing";
        STAT = 0x0000_0040 "stat", "request the status";
        METAOP = 0x0000_0080 "metaop", "change the inode only";
        REPLICA = 0x0000_0100 "replica", "create an additional copy";
        MULTI_WRITE = 0x0000_0200 "mwfiles", "several writable copies are allowed";
        NET_IPV4_TOO = 0x0000_1000 "net4", "both kinds of addresses, see [`SelectOptions::network`]";
        NET_IPV6 = 0x0000_2000 "net6", "has IPv6, see [`SelectOptions::network`]";
        NET_PRIVATE = 0x0000_8000 "private", "the client has a private address";
        RESELECT_LOCAL = 0x0004_0000 "reselect_local", "an additional nearby source";
        RESELECT_GLOBAL = 0x0008_0000 "reselect_global", "an additional source anywhere";
        NO_AFFINITY = 0x0040_0000 "affinity_none", "no affinity";
    }
}

/// The address families that a client can reach (bits 0x3000 of the options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientNetwork {
    /// IPv4 only.
    Ipv4,
    /// Both; IPv4 is preferred.
    PreferIpv4,
    /// IPv6 only.
    Ipv6,
    /// Both; IPv6 is preferred.
    PreferIpv6,
}

impl ClientNetwork {
    const MASK: u32 = 0x3000;

    const fn of(options: u32) -> Self {
        match options & Self::MASK {
            0x0000 => Self::Ipv4,
            0x1000 => Self::PreferIpv4,
            0x2000 => Self::Ipv6,
            _ => Self::PreferIpv6,
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Self::Ipv4 => 0x0000,
            Self::PreferIpv4 => 0x1000,
            Self::Ipv6 => 0x2000,
            Self::PreferIpv6 => 0x3000,
        }
    }
}

/// The reason of a retry (bits 0x30000 of the options): the failure at the last node that the
/// client tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TriedReason {
    /// The file was not found, or the client gave no reason.
    #[default]
    Missing,
    /// An I/O error.
    IoError,
    /// The file system failed.
    FsError,
    /// The server failed.
    ServerError,
}

/// The affinity of a file to one node (bits 0x300000 and 0x400000 of the options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAffinity {
    /// Unspecified: the configured affinity applies.
    Unsaid,
    /// No affinity.
    None,
    /// Weak affinity.
    Weak,
    /// Strong affinity.
    Strong,
    /// Strict affinity.
    Strict,
}

impl SelectOptions {
    const TRIED_SHIFT: u32 = 16;
    const TRIED_MASK: u32 = 0x0003_0000;
    const AFFINITY_SHIFT: u32 = 20;
    const AFFINITY_MASK: u32 = 0x0070_0000;
    /// The bits that request an additional source.
    pub const RESELECT: Self = Self(0x000c_0000);
    /// The bits that require a node with write access.
    pub const WRITING: Self = Self(0x0000_0032);

    /// Returns the address families that the client can reach.
    #[must_use]
    pub const fn network(self) -> ClientNetwork {
        ClientNetwork::of(self.0)
    }

    /// Returns the options with these address families.
    #[must_use]
    pub const fn with_network(self, network: ClientNetwork) -> Self {
        Self(self.0 & !ClientNetwork::MASK | network.bits())
    }

    /// Returns the failure at the last of the avoided nodes.
    #[must_use]
    pub const fn tried_reason(self) -> TriedReason {
        match (self.0 & Self::TRIED_MASK) >> Self::TRIED_SHIFT {
            0 => TriedReason::Missing,
            1 => TriedReason::IoError,
            2 => TriedReason::FsError,
            _ => TriedReason::ServerError,
        }
    }

    /// Returns the options with this failure at the last of the avoided nodes.
    #[must_use]
    pub const fn with_tried_reason(self, reason: TriedReason) -> Self {
        let reason = match reason {
            TriedReason::Missing => 0,
            TriedReason::IoError => 1,
            TriedReason::FsError => 2,
            TriedReason::ServerError => 3,
        };
        Self(self.0 & !Self::TRIED_MASK | reason << Self::TRIED_SHIFT)
    }

    /// Returns the requested affinity; the bit for "none" overrides the others.
    #[must_use]
    pub const fn affinity(self) -> FileAffinity {
        match (self.0 & Self::AFFINITY_MASK) >> Self::AFFINITY_SHIFT {
            0 => FileAffinity::Unsaid,
            1 => FileAffinity::Weak,
            2 => FileAffinity::Strong,
            3 => FileAffinity::Strict,
            _ => FileAffinity::None,
        }
    }

    /// Returns the options with this affinity.
    #[must_use]
    pub const fn with_affinity(self, affinity: FileAffinity) -> Self {
        let affinity = match affinity {
            FileAffinity::Unsaid => 0,
            FileAffinity::Weak => 1,
            FileAffinity::Strong => 2,
            FileAffinity::Strict => 3,
            FileAffinity::None => 4,
        };
        Self(self.0 & !Self::AFFINITY_MASK | affinity << Self::AFFINITY_SHIFT)
    }
}

flags! {
    /// Options of `locate`.
    LocateOptions(u32) {
        REFRESH = 0x0000_0001 "refresh", "query the nodes again";
        NAMES = 0x0000_0002 "names", "return host names instead of addresses";
        UNIQUE = 0x0000_0004 "unique", "return one server of each shared file system";
        ASAP = 0x0000_0080 "asap", "answer as soon as the first location is known";
        NET_IPV4_TOO = 0x0000_1000 "net4", "both kinds of addresses, see [`LocateOptions::network`]";
        NET_IPV6 = 0x0000_2000 "net6", "has IPv6, see [`LocateOptions::network`]";
        ALL_NETS = 0x0000_4000 "allnets", "include nodes that the client cannot reach";
        NET_PRIVATE = 0x0000_8000 "private", "the client has a private address";
    }
}

impl LocateOptions {
    /// Returns the address families that the client can reach.
    #[must_use]
    pub const fn network(self) -> ClientNetwork {
        ClientNetwork::of(self.0)
    }

    /// Returns the options with these address families.
    #[must_use]
    pub const fn with_network(self, network: ClientNetwork) -> Self {
        Self(self.0 & !ClientNetwork::MASK | network.bits())
    }
}

flags! {
    /// Modifier of `prepadd`.
    PrepaddModifier(u8) {
        STAGE = 0x01 "stage", "stage the file";
        WRITE = 0x02 "write", "the file will be written";
        COLOCATE = 0x04 "colocate", "place it beside the path in the priority";
        FRESHEN = 0x08 "freshen", "update the access time";
        META = 0x10 "meta", "relayed by a meta manager";
        EVICT = 0x40 "evict", "the file is no longer needed; Scalla nodes only";
    }
}

flags! {
    /// Modifier of `statfs`.
    StatfsModifier(u8) {
        TOTALS = 0x01 "totals", "sums over the nodes, `A total free max`";
    }
}

flags! {
    /// Modifier of `stats`.
    StatsModifier(u8) {
        SIZE = 0x01 "size", "return only the length of the answer";
    }
}

flags! {
    /// Modifier of `status`.
    StatusModifier(u8) {
        STAGE = 0x01 "stage", "can stage";
        NOSTAGE = 0x02 "nostage", "cannot stage";
        RESUME = 0x04 "resume", "accepts clients; the streamid may contain the data port";
        SUSPEND = 0x08 "suspend", "accepts no clients";
        RESET = 0x10 "reset", "discard all known locations; not combined with other bits";
        ESTABLISHED = 0x20 "established", "connected to all its managers; Scalla nodes only";
        DRAIN = 0x40 "drain", "move clients to other nodes; files without another copy are still served; Scalla nodes only";
        UNDRAIN = 0x80 "undrain", "ends drain; Scalla nodes only";
    }
}

flags! {
    /// Modifier of `try`.
    TryModifier(u8) {
        PERMANENT = 0x01 "permanent", "replace all managers of this site with these";
    }
}

flags! {
    /// Modifier of a response to a redirector. Managers of XRootD leave the modifier of the request
    /// in it.
    ResponseModifier(u8) {
        ASYNC = 0x80 "async", "the deferred answer to an earlier `waitresp`";
    }
}

flags! {
    /// Modifier of `inventory`, an extension of Scalla.
    InventoryModifier(u8) {
        WANTED = 0x01 "wanted", "from a parent, without paths: request an inventory";
        PENDING = 0x02 "pending", "these paths are being staged or written";
        FIRST = 0x04 "first", "first frame of an inventory";
        LAST = 0x08 "last", "last frame: the node has no other path";
        COMPLETE = 0x10 "complete", "with `last`: includes all directories and unfinished files; each later path is reported";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_match_the_recording() {
        let server = Mode(0x0080_0248);
        assert_eq!(format!("{server:?}"), "server|blredir|nostage|0x800000");
        assert_eq!((server.zone_hours(), server.share_percent()), (0, 0));
        let built = (Mode::SERVER | Mode::BLREDIR | Mode::NOSTAGE).with_zone_hours(0);
        assert_eq!(built, server);
        let manager = Mode(0x2880_0342);
        assert_eq!(manager.share_percent(), 40);
        let built = Mode::MANAGER | Mode::BLREDIR | Mode::NOSTAGE | Mode::SUSPEND;
        assert_eq!(built.with_zone_hours(0).with_share_percent(40), manager);
        assert_eq!(Mode::NONE.with_zone_hours(-5).zone_hours(), -5);
        assert_eq!(Mode::NONE.with_zone_hours(i8::MIN).zone_hours(), -15);
        assert_eq!(Mode::NONE.with_share_percent(200).share_percent(), 100);
    }

    #[test]
    fn a_message_is_relayed_three_times() {
        let mut modifier = RelayModifier::NONE;
        let mut relays = Vec::new();
        while let Some(next) = modifier.relayed() {
            relays.push((next.0, next.hops()));
            modifier = next;
        }
        assert_eq!(relays, [(0x40, 1), (0x80, 2), (0xc0, RelayModifier::HOPS_MAX)]);
        assert_eq!(RelayModifier::NO_FORWARD.relayed(), None);
        // Unknown bits are kept.
        assert_eq!(RelayModifier(0x01).relayed(), Some(RelayModifier(0x41)));
    }

    #[test]
    fn option_fields_are_set_and_read() {
        let stat = SelectOptions(0x9048);
        assert!(stat.contains(SelectOptions::READ | SelectOptions::STAT | SelectOptions::NET_PRIVATE));
        assert_eq!(stat.network(), ClientNetwork::PreferIpv4);
        for network in
            [ClientNetwork::Ipv4, ClientNetwork::PreferIpv4, ClientNetwork::Ipv6, ClientNetwork::PreferIpv6]
        {
            assert_eq!(stat.with_network(network).network(), network);
            assert_eq!(LocateOptions::ASAP.with_network(network).network(), network);
        }
        for reason in
            [TriedReason::Missing, TriedReason::IoError, TriedReason::FsError, TriedReason::ServerError]
        {
            assert_eq!(stat.with_tried_reason(reason).tried_reason(), reason);
        }
        for affinity in [
            FileAffinity::Unsaid,
            FileAffinity::None,
            FileAffinity::Weak,
            FileAffinity::Strong,
            FileAffinity::Strict,
        ] {
            assert_eq!(stat.with_affinity(affinity).affinity(), affinity);
        }
        assert_eq!(SelectOptions(0x40_0000), SelectOptions::NO_AFFINITY);
        assert_eq!(SelectOptions(0x32), SelectOptions::CREATE | SelectOptions::TRUNC | SelectOptions::WRITE);
    }
}
