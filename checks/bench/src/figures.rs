//! What is measured of a load, and what is asked of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is measured. In JSON the unit is in the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Figure {
    /// Operations per second; of a copy, bytes per second.
    #[serde(rename = "throughput_per_second")]
    Throughput,
    /// Processor time of the server for each operation, in microseconds.
    #[serde(rename = "server_cpu_us_per_operation")]
    Cpu,
    /// Latency that half of the operations keep, in microseconds.
    #[serde(rename = "p50_us")]
    P50,
    /// Latency that 99 of 100 operations keep, in microseconds.
    #[serde(rename = "p99_us")]
    P99,
    /// Seconds that a copy takes.
    #[serde(rename = "seconds")]
    Wall,
    /// Operations per second of the load beside.
    #[serde(rename = "operations_per_second_beside")]
    BesideThroughput,
    /// Resident bytes of the server for each connection.
    #[serde(rename = "resident_bytes_per_connection")]
    Memory,
    /// Throughput in proportion to that with 64 connections.
    #[serde(rename = "share_of_throughput_at_64")]
    Share,
    /// The latency that 99 of 100 operations keep when nobody is beside them, in microseconds.
    #[serde(rename = "p99_alone_us")]
    P99Alone,
    /// The one beside others in proportion to that.
    #[serde(rename = "p99_to_p99_alone")]
    Rise,
    /// The median beside others in proportion to that when nobody is beside them.
    #[serde(rename = "p50_to_p50_alone")]
    MedianRise,
    /// Processor time of the generator for each operation, in microseconds.
    #[serde(rename = "client_cpu_us_per_operation")]
    ClientCpu,
    /// Throughput in proportion to what all sources can give.
    #[serde(rename = "throughput_to_sum_of_sources")]
    OfSum,
    /// Most bytes that the client had in memory.
    #[serde(rename = "client_resident_bytes")]
    Resident,
    /// Threads of the client.
    #[serde(rename = "client_threads")]
    Threads,
    /// Context switches of the server for each operation.
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
            Self::Switches => "context switches",
        }
    }

    /// A value with its unit.
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
            Self::Share | Self::Rise | Self::MedianRise | Self::Switches | Self::OfSum => three(value),
        }
    }
}

/// What one run came to.
pub(crate) type Figures = BTreeMap<Figure, f64>;

/// What is asked of us.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    pub(crate) figure: Figure,
    pub(crate) bound: Bound,
    pub(crate) basis: Basis,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// To what the bound applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Basis {
    /// Ours in proportion to theirs.
    Ratio,
    /// Our figure itself.
    Ours,
}

impl Goal {
    /// Our figure is at least so many times theirs.
    pub(crate) const fn at_least(figure: Figure, times: f64) -> Self {
        Self { figure, bound: Bound::AtLeast(times), basis: Basis::Ratio }
    }

    /// Our figure is at most so many times theirs.
    pub(crate) const fn at_most(figure: Figure, times: f64) -> Self {
        Self { figure, bound: Bound::AtMost(times), basis: Basis::Ratio }
    }

    /// The same for our figure itself.
    pub(crate) const fn of_ours(self) -> Self {
        Self { basis: Basis::Ours, ..self }
    }

    pub(crate) fn is_met(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtLeast(limit) => value >= limit,
            Bound::AtMost(limit) => value <= limit,
        }
    }

    /// What it asks about, with its unit.
    pub(crate) fn show(&self, value: f64) -> String {
        match self.basis {
            Basis::Ratio => format!("{value:.2}"),
            Basis::Ours => self.figure.show(value),
        }
    }

    /// `CPU at most 0.60`.
    pub(crate) fn text(&self) -> String {
        let (word, limit) = match self.bound {
            Bound::AtLeast(limit) => ("at least", limit),
            Bound::AtMost(limit) => ("at most", limit),
        };
        format!("{} {word} {}", self.figure.name(), self.show(limit))
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
