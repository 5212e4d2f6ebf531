//! Hosts that cannot reach each other.
//!
//! A split of the network divides all hosts into groups; besides, pairs of hosts may be separated
//! from each other only.

/// The separations of the hosts of a world.
#[derive(Debug, Default)]
pub(crate) struct Separations {
    /// The group of each host while the network is split.
    groups: Vec<u8>,
    /// Pairs of hosts that are separated from each other only.
    pairs: Vec<(u32, u32)>,
}

impl Separations {
    /// Adds the next host.
    pub(crate) fn add_host(&mut self) {
        self.groups.push(0);
    }

    /// Reports whether two hosts are separated.
    pub(crate) fn separate(&self, a: u32, b: u32) -> bool {
        let apart = |pair: &(u32, u32)| *pair == (a, b) || *pair == (b, a);
        self.groups[a as usize] != self.groups[b as usize] || self.pairs.iter().any(apart)
    }

    /// Splits the network: hosts of different groups are separated.
    pub(crate) fn split(&mut self, group: impl Fn(usize) -> u8) {
        for (index, of) in self.groups.iter_mut().enumerate() {
            *of = group(index);
        }
    }

    /// Separates one host from all others, or ends that.
    pub(crate) fn cut_off(&mut self, index: usize, off: bool) {
        if let Some(group) = self.groups.get_mut(index) {
            *group = if off { group.wrapping_add(128) } else { *group % 128 };
        }
    }

    /// Separates a pair of hosts, once more if it is separated already.
    pub(crate) fn add_pair(&mut self, pair: (u32, u32)) {
        self.pairs.push(pair);
    }

    /// Ends one separation of a pair.
    pub(crate) fn remove_pair(&mut self, pair: (u32, u32)) {
        if let Some(at) = self.pairs.iter().position(|other| *other == pair) {
            self.pairs.swap_remove(at);
        }
    }

    /// Ends all separations of a pair.
    pub(crate) fn remove_all_of(&mut self, pair: (u32, u32)) {
        self.pairs.retain(|known| *known != pair);
    }

    /// Ends all separations.
    pub(crate) fn heal(&mut self) {
        self.groups.fill(0);
        self.pairs.clear();
    }
}
