//! Flag words of the cms protocol, one type per field.
//!
//! The raw bit (0x20: the payload is a bare path) says how the payload is packed; the codec deals with it and it is
//! in none of these words. Source: cms protocol version 3, sections 1.5, 2.3.

use crate::newtypes::flags;

/// Bit of every modifier: the payload is one path without a length in front, with its NUL behind.
pub(super) const RAW: u8 = 0x20;

flags! {
    /// `mode` of a login (section 2.3).
    Mode(u32) {
        DIRECTOR = 0x0000_0001 "director", "a redirector; all other fields of the login are ignored";
        MANAGER = 0x0000_0002 "manager", "will accept children";
        PEER = 0x0000_0004 "peer", "a peer cluster";
        SERVER = 0x0000_0008 "server", "provides data; with manager, a supervisor";
        PROXY = 0x0000_0010 "proxy", "a proxy";
        SUBMAN = 0x0000_0020 "subman", "manager of a subcluster";
        BLREDIR = 0x0000_0040 "blredir", "understands a permanent redirect";
        SUSPEND = 0x0000_0100 "suspend", "takes no clients now";
        NOSTAGE = 0x0000_0200 "nostage", "cannot stage";
        TRYING = 0x0000_0400 "trying", "found no slot in six full passes";
        DEBUG = 0x8000_0000 "debug", "tracing is on";
    }
}

impl Mode {
    const ZONE_SHIFT: u32 = 19;
    const ZONE_MASK: u32 = 0x00f8_0000;
    const SHARE_SHIFT: u32 = 24;
    const SHARE_MASK: u32 = 0x7f00_0000;

    /// The time zone: hours east of UTC (west negative), -15 to 15. For information only.
    #[must_use]
    pub const fn zone_hours(self) -> i8 {
        let [zone, ..] = ((self.0 & Self::ZONE_MASK) >> Self::ZONE_SHIFT).to_le_bytes();
        let hours = (zone & 0x0f).cast_signed();
        if zone & 0x10 != 0 { hours } else { -hours }
    }

    /// With the time zone `hours` east of UTC, cut to -15 to 15.
    #[must_use]
    pub const fn with_zone_hours(self, hours: i8) -> Self {
        let (east, hours) = (hours >= 0, hours.unsigned_abs());
        let hours = if hours > 15 { 15 } else { hours };
        let zone = (if east { 0x10 } else { 0 } | hours) as u32;
        Self(self.0 & !Self::ZONE_MASK | zone << Self::ZONE_SHIFT)
    }

    /// The share of requests a meta manager shall send here, in percent; 0: not said.
    #[must_use]
    pub const fn share_percent(self) -> u8 {
        let [share, ..] = ((self.0 & Self::SHARE_MASK) >> Self::SHARE_SHIFT).to_le_bytes();
        share
    }

    /// With a share in percent, cut to 100.
    #[must_use]
    pub const fn with_share_percent(self, percent: u8) -> Self {
        let share = if percent > 100 { 100 } else { percent as u32 };
        Self(self.0 & !Self::SHARE_MASK | share << Self::SHARE_SHIFT)
    }
}

flags! {
    /// Modifier of `chmod`, `mkdir`, `mkpath`, `mv`, `prepdel`, `rm`, `rmdir` and `trunc`: how often it was relayed
    /// in the upper two bits, and what not to do with it.
    RelayModifier(u8) {
        NO_FORWARD = 0x10 "noforward", "mv, rm, rmdir: forget it, do not relay";
    }
}

impl RelayModifier {
    const HOP: u8 = 0x40;
    const HOPS: u8 = 0xc0;
    /// Most relays of a message.
    pub const HOPS_MAX: u8 = 3;

    /// How often the message was relayed, 0 to 3.
    #[must_use]
    pub const fn hops(self) -> u8 {
        (self.0 & Self::HOPS) / Self::HOP
    }

    /// The modifier with which the message is relayed; `None` when it has been relayed as often as it may, or says
    /// that it must not be.
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
        ONLINE = 0x01 "online", "the file is there";
        PENDING = 0x02 "pending", "the file is being staged or written";
        DRAINING = 0x04 "draining", "only nodes have it whose clients are being moved away; among our own nodes";
    }
}

flags! {
    /// Modifier of `state`.
    StateModifier(u8) {
        REFRESH = 0x01 "refresh", "look, do not trust a cache";
        NO_REPLY = 0x02 "noreply", "do not answer";
        DEFINITE = 0x04 "definite", "answer `nothere` when it is not here; our own, real nodes pass it on unseen";
        META = 0x08 "meta", "the question comes from a meta manager";
    }
}

flags! {
    /// Options of `select`.
    SelectOptions(u32) {
        REFRESH = 0x0000_0001 "refresh", "ask the nodes again";
        CREATE = 0x0000_0002 "create", "a new file";
        ONLINE = 0x0000_0004 "online", "only where no staging is needed";
        READ = 0x0000_0008 "read", "to read";
        TRUNC = 0x0000_0010 "trunc", "to overwrite or create; wins over create";
        WRITE = 0x0000_0020 "write", "to write";
        STAT = 0x0000_0040 "stat", "to stat";
        METAOP = 0x0000_0080 "metaop", "to change the inode only";
        REPLICA = 0x0000_0100 "replica", "a further copy";
        MULTI_WRITE = 0x0000_0200 "mwfiles", "several writable copies are fine";
        NET_IPV4_TOO = 0x0000_1000 "net4", "both kinds of addresses, see [`SelectOptions::network`]";
        NET_IPV6 = 0x0000_2000 "net6", "has IPv6, see [`SelectOptions::network`]";
        NET_PRIVATE = 0x0000_8000 "private", "the client has a private address";
        RESELECT_LOCAL = 0x0004_0000 "reselect_local", "one more source, near";
        RESELECT_GLOBAL = 0x0008_0000 "reselect_global", "one more source, anywhere";
        NO_AFFINITY = 0x0040_0000 "affinity_none", "no affinity";
    }
}

/// What addresses a client can reach (bits 0x3000 of the options).
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

/// Why the client comes again (bits 0x30000 of the options): what happened at the last of the nodes it tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TriedReason {
    /// The file was not there, or nothing was said.
    #[default]
    Missing,
    /// An I/O error.
    IoError,
    /// The file system failed.
    FsError,
    /// The server failed.
    ServerError,
}

/// How strictly a file belongs to one node (bits 0x300000 and 0x400000 of the options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// Nothing was said: what is configured.
    Unsaid,
    /// None.
    None,
    /// Weak.
    Weak,
    /// Strong.
    Strong,
    /// Strict.
    Strict,
}

impl SelectOptions {
    const TRIED_SHIFT: u32 = 16;
    const TRIED_MASK: u32 = 0x0003_0000;
    const AFFINITY_SHIFT: u32 = 20;
    const AFFINITY_MASK: u32 = 0x0070_0000;
    /// Any of the bits that ask for one more source.
    pub const RESELECT: Self = Self(0x000c_0000);
    /// Any of the bits for which a node must be able to write.
    pub const WRITING: Self = Self(0x0000_0032);

    /// What addresses the client can reach.
    #[must_use]
    pub const fn network(self) -> ClientNetwork {
        ClientNetwork::of(self.0)
    }

    /// With what the client can reach.
    #[must_use]
    pub const fn with_network(self, network: ClientNetwork) -> Self {
        Self(self.0 & !ClientNetwork::MASK | network.bits())
    }

    /// What happened at the last of the avoided nodes.
    #[must_use]
    pub const fn tried_reason(self) -> TriedReason {
        match (self.0 & Self::TRIED_MASK) >> Self::TRIED_SHIFT {
            0 => TriedReason::Missing,
            1 => TriedReason::IoError,
            2 => TriedReason::FsError,
            _ => TriedReason::ServerError,
        }
    }

    /// With what happened at the last of the avoided nodes.
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

    /// The wanted affinity; "none" wins over the others.
    #[must_use]
    pub const fn affinity(self) -> Affinity {
        match (self.0 & Self::AFFINITY_MASK) >> Self::AFFINITY_SHIFT {
            0 => Affinity::Unsaid,
            1 => Affinity::Weak,
            2 => Affinity::Strong,
            3 => Affinity::Strict,
            _ => Affinity::None,
        }
    }

    /// With an affinity.
    #[must_use]
    pub const fn with_affinity(self, affinity: Affinity) -> Self {
        let affinity = match affinity {
            Affinity::Unsaid => 0,
            Affinity::Weak => 1,
            Affinity::Strong => 2,
            Affinity::Strict => 3,
            Affinity::None => 4,
        };
        Self(self.0 & !Self::AFFINITY_MASK | affinity << Self::AFFINITY_SHIFT)
    }
}

flags! {
    /// Options of `locate`.
    LocateOptions(u32) {
        REFRESH = 0x0000_0001 "refresh", "ask the nodes again";
        NAMES = 0x0000_0002 "names", "host names instead of addresses";
        UNIQUE = 0x0000_0004 "unique", "of a shared file system one server";
        ASAP = 0x0000_0080 "asap", "answer at the first that has it";
        NET_IPV4_TOO = 0x0000_1000 "net4", "both kinds of addresses, see [`LocateOptions::network`]";
        NET_IPV6 = 0x0000_2000 "net6", "has IPv6, see [`LocateOptions::network`]";
        ALL_NETS = 0x0000_4000 "allnets", "list nodes the client cannot reach too";
        NET_PRIVATE = 0x0000_8000 "private", "the client has a private address";
    }
}

impl LocateOptions {
    /// What addresses the client can reach.
    #[must_use]
    pub const fn network(self) -> ClientNetwork {
        ClientNetwork::of(self.0)
    }

    /// With what the client can reach.
    #[must_use]
    pub const fn with_network(self, network: ClientNetwork) -> Self {
        Self(self.0 & !ClientNetwork::MASK | network.bits())
    }
}

flags! {
    /// Modifier of `prepadd`.
    PrepaddModifier(u8) {
        STAGE = 0x01 "stage", "bring the file online";
        WRITE = 0x02 "write", "it will be written";
        COLOCATE = 0x04 "colocate", "place it beside the path in the priority";
        FRESHEN = 0x08 "freshen", "renew its access time";
        META = 0x10 "meta", "came through a meta manager";
        EVICT = 0x40 "evict", "own nodes: it is not needed any more";
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
        SIZE = 0x01 "size", "only how long the answer would be";
    }
}

flags! {
    /// Modifier of `status`.
    StatusModifier(u8) {
        STAGE = 0x01 "stage", "can stage";
        NOSTAGE = 0x02 "nostage", "cannot stage";
        RESUME = 0x04 "resume", "takes clients; the streamid may hold the data port";
        SUSPEND = 0x08 "suspend", "takes no clients";
        RESET = 0x10 "reset", "ask again for everything; stands alone";
        DRAIN = 0x40 "drain", "own nodes: clients are to move elsewhere, what nobody else has is still served";
        UNDRAIN = 0x80 "undrain", "own nodes: takes clients as before";
    }
}

flags! {
    /// Modifier of `try`.
    TryModifier(u8) {
        PERMANENT = 0x01 "permanent", "forget all managers of this site and start with these";
    }
}

flags! {
    /// Modifier of a response to a redirector. Real managers leave the modifier of the request in it.
    ResponseModifier(u8) {
        ASYNC = 0x80 "async", "belongs to an earlier `waitresp`";
    }
}

flags! {
    /// Modifier of `inventory`, one of our own messages.
    InventoryModifier(u8) {
        WANTED = 0x01 "wanted", "from a parent, without paths: tell what is there";
        PENDING = 0x02 "pending", "these paths are being staged or written";
        FIRST = 0x04 "first", "starts an inventory";
        LAST = 0x08 "last", "ends it: the node has no other path";
        COMPLETE = 0x10 "complete", "with `last`: it lists all directories and unfinished files, too, and every later path is reported";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_modes() {
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
        // Bits of which nothing is known travel on.
        assert_eq!(RelayModifier(0x01).relayed(), Some(RelayModifier(0x41)));
    }

    #[test]
    fn fields_of_the_options() {
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
        for affinity in [Affinity::Unsaid, Affinity::None, Affinity::Weak, Affinity::Strong, Affinity::Strict]
        {
            assert_eq!(stat.with_affinity(affinity).affinity(), affinity);
        }
        assert_eq!(SelectOptions(0x40_0000), SelectOptions::NO_AFFINITY);
        assert_eq!(SelectOptions(0x32), SelectOptions::CREATE | SelectOptions::TRUNC | SelectOptions::WRITE);
    }
}
