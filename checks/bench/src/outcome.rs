//! The results of a load: medians, ratios, goals met.
//!
//! Ratios are computed for each pair and not for medians, because a disturbance of the machine
//! affects both runs of a pair.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use crate::cipher_floor;
use crate::figures::{Basis, Figure, Figures, Goal};
use crate::machine::Processors;
use crate::measure::Measure;
use crate::row::Row;
use crate::server::ServerSide;
use crate::servers::Fleet;

/// Maximum share of other guests of the host during a run; above it the run is repeated.
const STOLEN_MAX: f64 = 0.05;

/// Maximum number of repetitions, because a permanent disturbance cannot be avoided.
const AGAIN_MAX: u32 = 1;

/// The results of a load.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LoadOutcome {
    pub(crate) name: String,
    pub(crate) title: String,
    /// Lines of our server's configuration; below them additional lines of theirs.
    pub(crate) ours_configuration: Vec<String>,
    pub(crate) theirs_configuration: Vec<String>,
    pub(crate) goals: Vec<Goal>,
    /// Runs in the order of their execution.
    pub(crate) ours: Vec<Figures>,
    pub(crate) theirs: Vec<Figures>,
    pub(crate) floor: Vec<Figures>,
    #[serde(default)]
    pub(crate) bare: Vec<Figures>,
    pub(crate) error: Option<String>,
}

/// Returns the maximum number of measurements of a load for this number of pairs.
pub(crate) const fn measurements(pairs: u32) -> u32 {
    pairs * 2 * (1 + AGAIN_MAX)
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Measures a load in interleaved pairs.
pub(crate) fn of(row: &Row, fleet: &mut Fleet<'_>, measure: &Measure<'_>, pairs: u32) -> LoadOutcome {
    let mut outcome = LoadOutcome {
        name: row.name.clone(),
        title: row.title.clone(),
        ours_configuration: lines(&row.setting.ours),
        theirs_configuration: lines(&row.setting.theirs),
        goals: row.goals.clone(),
        ours: Vec::new(),
        theirs: Vec::new(),
        floor: Vec::new(),
        bare: Vec::new(),
        error: None,
    };
    if let Err(error) = measured(row, fleet, measure, pairs, &mut outcome) {
        outcome.error = Some(format!("{error:#}"));
    }
    outcome
}

fn measured(
    row: &Row,
    fleet: &mut Fleet<'_>,
    measure: &Measure<'_>,
    pairs: u32,
    outcome: &mut LoadOutcome,
) -> anyhow::Result<()> {
    for pair in 0..pairs {
        if let Some(bytes) = row.encrypted_bytes {
            outcome.floor.push(undisturbed(|| cipher_floor::measure(bytes))?);
        }
        let mut servers: Vec<_> = fleet.with(&row.setting)?.iter().collect();
        // The order may affect the result, so each side is first equally often.
        if pair % 2 == 1 {
            servers.reverse();
        }
        for server in servers {
            let into = match server.side {
                ServerSide::Ours => &mut outcome.ours,
                ServerSide::Theirs => &mut outcome.theirs,
                ServerSide::Floor if row.floor.is_some() => &mut outcome.floor,
                ServerSide::Bare if row.bare => &mut outcome.bare,
                ServerSide::Floor | ServerSide::Bare => continue,
            };
            let side = format!("{:?}", server.side).to_lowercase();
            // A measurement of a fresh server must not begin with a comparison of data.
            if pair == 0 && server.side == ServerSide::Ours && !row.setting.fresh {
                measure
                    .verify(row, server)
                    .map_err(|error| error.context(format!("{side}, data compared")))?;
            }
            into.push(undisturbed(|| measure.once(row, server)).map_err(|error| error.context(side))?);
        }
    }
    Ok(())
}

/// Repeats a measurement if other guests of the host used too much processor time.
fn undisturbed(mut once: impl FnMut() -> anyhow::Result<Figures>) -> anyhow::Result<Figures> {
    let mut left = AGAIN_MAX;
    loop {
        let before = Processors::now();
        let figures = once()?;
        if left == 0 || Processors::now().stolen_since(&before) <= STOLEN_MAX {
            return Ok(figures);
        }
        left -= 1;
    }
}

impl LoadOutcome {
    /// Returns the figures that both sides have.
    pub(crate) fn figures(&self) -> BTreeSet<Figure> {
        let of = |runs: &[Figures]| -> BTreeSet<Figure> {
            runs.iter().flat_map(|run| run.keys().copied()).collect()
        };
        of(&self.ours).intersection(&of(&self.theirs)).copied().collect()
    }

    pub(crate) fn runs(&self, side: ServerSide) -> &[Figures] {
        match side {
            ServerSide::Ours => &self.ours,
            ServerSide::Theirs => &self.theirs,
            ServerSide::Floor => &self.floor,
            ServerSide::Bare => &self.bare,
        }
    }

    /// Returns the median of the runs.
    pub(crate) fn median(&self, side: ServerSide, figure: Figure) -> Option<f64> {
        median(self.runs(side).iter().filter_map(|run| run.get(&figure).copied()).collect())
    }

    /// Returns the median of the ratios of each run of `side` to the run of `to` in the same pair.
    pub(crate) fn ratio(&self, side: ServerSide, to: ServerSide, figure: Figure) -> Option<f64> {
        let pairs = self.runs(side).iter().zip(self.runs(to));
        let ratio = |(one, other): (&Figures, &Figures)| Some(one.get(&figure)? / other.get(&figure)?);
        median(pairs.filter_map(ratio).filter(|ratio| ratio.is_finite()).collect())
    }

    /// Returns the median of the differences of our runs to those of the bare server.
    pub(crate) fn more_than_bare(&self, figure: Figure) -> Option<f64> {
        let pairs = self.ours.iter().zip(&self.bare);
        let more = |(one, other): (&Figures, &Figures)| Some(one.get(&figure)? - other.get(&figure)?);
        median(pairs.filter_map(more).collect())
    }

    /// Returns the value for a goal and whether it is met; `None` if it was not measured.
    pub(crate) fn judge(&self, goal: &Goal) -> Option<(f64, bool)> {
        let value = self.asked(goal, ServerSide::Ours)?;
        Some((value, goal.is_met(value)))
    }

    /// Returns the value of the bare server, or otherwise of the floor, for a goal. If that value
    /// misses the goal, the kernel is the reason.
    pub(crate) fn floor_of(&self, goal: &Goal) -> Option<f64> {
        let side = if self.bare.is_empty() { ServerSide::Floor } else { ServerSide::Bare };
        self.asked(goal, side)
    }

    fn asked(&self, goal: &Goal, side: ServerSide) -> Option<f64> {
        match goal.basis {
            Basis::Ratio => self.ratio(side, ServerSide::Theirs, goal.figure),
            Basis::Ours => self.median(side, goal.figure),
            Basis::Floor => self.ratio(side, ServerSide::Floor, goal.figure),
        }
    }
}

/// Returns the middle of values, or none of none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ours: &[f64], theirs: &[f64]) -> LoadOutcome {
        let runs =
            |values: &[f64]| values.iter().map(|value| Figures::from([(Figure::Cpu, *value)])).collect();
        LoadOutcome {
            name: String::new(),
            title: String::new(),
            ours_configuration: Vec::new(),
            theirs_configuration: Vec::new(),
            goals: Vec::new(),
            ours: runs(ours),
            theirs: runs(theirs),
            floor: Vec::new(),
            bare: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn medians_of_even_and_odd_numbers_of_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // A disturbance doubled both values of the second pair and one of the third.
        let outcome = outcome(&[1.0, 2.0, 2.0], &[2.0, 4.0, 2.0]);
        assert_eq!(outcome.ratio(ServerSide::Ours, ServerSide::Theirs, Figure::Cpu), Some(0.5));
        assert_eq!(outcome.median(ServerSide::Ours, Figure::Cpu), Some(2.0));
        let goal = Goal::at_most(Figure::Cpu, 0.5);
        assert_eq!(outcome.judge(&goal), Some((0.5, true)));
        assert_eq!(outcome.judge(&Goal::at_most(Figure::P99, 0.5)), None);
    }

    #[test]
    fn a_division_by_zero_is_not_a_ratio() {
        assert_eq!(outcome(&[1.0], &[0.0]).ratio(ServerSide::Ours, ServerSide::Theirs, Figure::Cpu), None);
    }
}
