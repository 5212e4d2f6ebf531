//! The faults that occurred in the worlds of many seeds, because a kind that never occurs proves
//! nothing.

use std::fmt;

use crate::counts::Counts;
use crate::host::{HostKind, SimHost};
use crate::own_process::QueryBehaviour;
use crate::world::World;

/// The error of a clock's speed above which it counts as drifting.
const DRIFT: f64 = 0.001;

/// The kinds of faults, with the number of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCounts([(&'static str, u64); 30]);

impl FaultCounts {
    /// Returns the faults of this world; `splits`, `flaps` and `cut_off` are counted by its caller.
    pub(crate) fn of(world: &World, splits: u64, flaps: u64, cut_off: u64) -> Self {
        let Counts { lost, late, overtaken, broken, silent, stalled, cut, full, .. } = world.counts;
        let Counts { unanswered, crashed, quietly, returned, still, hung, suspended, .. } = world.counts;
        let Counts { drained, apart, parked, .. } = world.counts;
        let hosts =
            |fits: &dyn Fn(&SimHost) -> bool| world.hosts.iter().filter(|host| fits(host)).count() as u64;
        let behaviour = |behaviour| hosts(&move |host: &SimHost| host.behaviour == behaviour);
        let [managers, supervisors, servers, real] = crashed;
        Self([
            ("messages lost", lost),
            ("messages late", late),
            ("messages overtaken by a younger one of another connection", overtaken),
            ("connections broken", broken),
            ("connections silent for good", silent),
            ("connections stalled, then delivered", stalled),
            ("connections cut by a split", cut),
            ("requests or answers of clients lost", unanswered),
            ("splits of the network", splits),
            ("nodes cut off and back, again and again", cut_off),
            ("nodes down and up, again and again", flaps),
            ("clocks off by more than one in a thousand", hosts(&|host| (host.rate() - 1.0).abs() > DRIFT)),
            ("managers crashed", managers),
            ("supervisors crashed", supervisors),
            ("servers crashed", servers),
            ("real nodes crashed", real),
            ("crashes without a word", quietly),
            ("nodes returned", returned),
            ("nodes that found a cell full", full),
            ("servers that claim every file", behaviour(QueryBehaviour::Claims)),
            ("servers that never answer", behaviour(QueryBehaviour::Mute)),
            ("hosts that stood still", still[0]),
            ("hosts that stood still with their clocks", still[1]),
            ("disks that hung", hung),
            ("servers out of use by order", suspended[0]),
            ("supervisors out of use by order", suspended[1]),
            ("servers drained", drained),
            ("pairs of hosts cut off from each other alone", apart),
            ("managers crashed while nodes waited for a place", parked),
            ("storms of logins", hosts(&|host| host.kind == HostKind::Flood)),
        ])
    }

    /// Adds the faults of another world.
    pub fn add(&mut self, other: &Self) {
        for ((_, count), (_, more)) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }

    /// Returns the kinds that never occurred.
    pub fn never(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, count)| *count == 0).map(|(kind, _)| *kind).collect()
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.0 {
            writeln!(f, "{count:>12} {kind}")?;
        }
        Ok(())
    }
}
