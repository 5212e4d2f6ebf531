//! The measured figures of a load, and goals for them.
//!
//! All loads share one set of figures, so that their tables have the same columns and units.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A measured figure. Its name in JSON includes the unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Figure {
    /// Operations per second; for a copy, bytes per second.
    #[serde(rename = "throughput_per_second")]
    Throughput,
    /// Processor time of the server per operation, in microseconds.
    #[serde(rename = "server_cpu_us_per_operation")]
    Cpu,
    /// Median latency in microseconds.
    #[serde(rename = "p50_us")]
    P50,
    /// 99th percentile of the latency in microseconds.
    #[serde(rename = "p99_us")]
    P99,
    /// Duration of a copy in seconds.
    #[serde(rename = "seconds")]
    Wall,
    /// Operations per second of the concurrent load.
    #[serde(rename = "operations_per_second_beside")]
    BesideThroughput,
    /// Resident bytes of the server per connection.
    #[serde(rename = "resident_bytes_per_connection")]
    Memory,
    /// Throughput relative to that with 64 connections.
    #[serde(rename = "share_of_throughput_at_64")]
    Share,
    /// 99th percentile of the latency without a concurrent load, in microseconds.
    #[serde(rename = "p99_alone_us")]
    P99Alone,
    /// Ratio of the 99th percentile with a concurrent load to that without.
    #[serde(rename = "p99_to_p99_alone")]
    Rise,
    /// Ratio of the median with a concurrent load to that without.
    #[serde(rename = "p50_to_p50_alone")]
    MedianRise,
    /// Processor time of the generator per operation, in microseconds.
    #[serde(rename = "client_cpu_us_per_operation")]
    ClientCpu,
    /// Throughput relative to the maximum of all sources.
    #[serde(rename = "throughput_to_sum_of_sources")]
    OfSum,
    /// Maximum resident bytes of the client.
    #[serde(rename = "client_resident_bytes")]
    Resident,
    /// Number of threads of the client.
    #[serde(rename = "client_threads")]
    Threads,
    /// Bytes that a proxy reads at its origin, per byte that clients need.
    #[serde(rename = "origin_bytes_per_byte")]
    Fetched,
    /// Maximum size of a cache relative to its limit.
    #[serde(rename = "cache_size_to_limit")]
    OverLimit,
    /// Context switches of the server per operation.
    #[serde(rename = "context_switches_per_operation")]
    Switches,
}

impl Figure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Cpu => "CPU",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Wall => "time",
            Self::BesideThroughput => "throughput beside",
            Self::Memory => "memory per connection",
            Self::Share => "share of the throughput at 64",
            Self::P99Alone => "p99 alone",
            Self::Rise => "p99 beside others to p99 alone",
            Self::MedianRise => "p50 beside others to p50 alone",
            Self::ClientCpu => "client CPU",
            Self::OfSum => "part of the sum",
            Self::Resident => "client memory",
            Self::Threads => "client threads",
            Self::Fetched => "bytes fetched per byte",
            Self::OverLimit => "cache size to its limit",
            Self::Switches => "context switches",
        }
    }

    /// Returns a value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        let three = |value: f64| match value {
            value if value >= 100.0 => format!("{value:.0}"),
            value if value >= 10.0 => format!("{value:.1}"),
            value => format!("{value:.2}"),
        };
        match self {
            Self::Throughput | Self::BesideThroughput if value >= 1e6 => format!("{}M/s", three(value / 1e6)),
            Self::Throughput | Self::BesideThroughput if value >= 1e3 => format!("{}k/s", three(value / 1e3)),
            Self::Throughput | Self::BesideThroughput => format!("{}/s", three(value)),
            Self::Cpu | Self::P50 | Self::P99 | Self::P99Alone | Self::ClientCpu => match value {
                value if value >= 1e6 => format!("{} s", three(value / 1e6)),
                value if value >= 1e3 => format!("{} ms", three(value / 1e3)),
                value => format!("{} us", three(value)),
            },
            Self::Wall => format!("{} s", three(value)),
            Self::Memory if value >= 1024.0 => format!("{} KiB", three(value / 1024.0)),
            Self::Memory => format!("{value:.0} B"),
            Self::Resident => format!("{} MiB", three(value / 1048576.0)),
            Self::Threads => format!("{value:.0}"),
            Self::Fetched
            | Self::OverLimit
            | Self::Share
            | Self::Rise
            | Self::MedianRise
            | Self::Switches
            | Self::OfSum => three(value),
        }
    }
}

/// The figures of one run.
pub(crate) type Figures = BTreeMap<Figure, f64>;

/// A goal for a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    pub(crate) figure: Figure,
    pub(crate) bound: GoalBound,
    pub(crate) basis: Basis,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalBound {
    AtLeast(f64),
    AtMost(f64),
}

/// The value to which the bound applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Basis {
    /// The ratio of our figure to theirs.
    Ratio,
    /// Our figure itself.
    Ours,
    /// The ratio of our figure to that of the floor.
    Floor,
}

impl Goal {
    /// Requires that our figure is at least `times` theirs.
    pub(crate) const fn at_least(figure: Figure, times: f64) -> Self {
        Self { figure, bound: GoalBound::AtLeast(times), basis: Basis::Ratio }
    }

    /// Requires that our figure is at most `times` theirs.
    pub(crate) const fn at_most(figure: Figure, times: f64) -> Self {
        Self { figure, bound: GoalBound::AtMost(times), basis: Basis::Ratio }
    }

    /// Returns the goal for our figure itself.
    pub(crate) const fn of_ours(self) -> Self {
        Self { basis: Basis::Ours, ..self }
    }

    /// Returns the goal for the ratio of our figure to that of the floor.
    pub(crate) const fn of_floor(self) -> Self {
        Self { basis: Basis::Floor, ..self }
    }

    pub(crate) fn is_met(&self, value: f64) -> bool {
        match self.bound {
            GoalBound::AtLeast(limit) => value >= limit,
            GoalBound::AtMost(limit) => value <= limit,
        }
    }

    /// Returns the value with its unit.
    pub(crate) fn show(&self, value: f64) -> String {
        match self.basis {
            Basis::Ratio | Basis::Floor => format!("{value:.2}"),
            Basis::Ours => self.figure.show(value),
        }
    }

    /// Returns the goal as text: `CPU at most 0.60`.
    pub(crate) fn text(&self) -> String {
        let (word, limit) = match self.bound {
            GoalBound::AtLeast(limit) => ("at least", limit),
            GoalBound::AtMost(limit) => ("at most", limit),
        };
        let of = if self.basis == Basis::Floor { " of the floor" } else { "" };
        format!("{} {word} {}{of}", self.figure.name(), self.show(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_up_to_their_limit() {
        let cpu = Goal::at_most(Figure::Cpu, 0.6);
        assert!(cpu.is_met(0.6) && !cpu.is_met(0.61));
        let rate = Goal::at_least(Figure::Throughput, 3.0);
        assert!(rate.is_met(3.0) && !rate.is_met(2.99));
        assert_eq!(cpu.text(), "CPU at most 0.60");
        assert_eq!(
            Goal::at_most(Figure::Memory, 1024.0).of_ours().text(),
            "memory per connection at most 1.00 KiB"
        );
        assert_eq!(rate.of_floor().text(), "throughput at least 3.00 of the floor");
    }

    #[test]
    fn figures_have_units() {
        assert_eq!(Figure::Throughput.show(190_400.0), "190k/s");
        assert_eq!(Figure::Throughput.show(2.1e9), "2100M/s");
        assert_eq!(Figure::Cpu.show(4.44), "4.44 us");
        assert_eq!(Figure::P99.show(683_000.0), "683 ms");
        assert_eq!(Figure::Wall.show(1.0), "1.00 s");
    }
}
