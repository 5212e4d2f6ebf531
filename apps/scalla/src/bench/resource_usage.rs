//! Resource usage of a measurement: time, CPU time of this process, and usage of the servers.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

use super::load_plan::LoadPlan;
use super::process_usage::{ProcessCosts, UsageDifference};

/// The resource usage of a measurement. It is updated when the stages of the load begin and end.
#[derive(Debug)]
pub(super) struct Resources {
    servers: Vec<u32>,
    /// Usage before the first connection, with all connections, and when measuring began and ended;
    /// one entry per server.
    start: Vec<ProcessCosts>,
    prepared: Vec<ProcessCosts>,
    begun: Option<(Instant, Duration, Vec<ProcessCosts>)>,
    ended: Option<(Instant, Duration, Vec<ProcessCosts>)>,
}

/// The total usage of all servers during the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerCost {
    pub(super) used: UsageDifference,
    /// Resident memory before the first connection, with all connections, and at the end, in bytes.
    pub(super) resident_at_start: u64,
    pub(super) resident_prepared: u64,
    pub(super) resident_at_end: u64,
}

impl Resources {
    pub(super) fn new(plan: &LoadPlan) -> anyhow::Result<Self> {
        let servers = plan.servers.clone();
        let start = usage(&servers)?;
        Ok(Self { servers, start, prepared: Vec::new(), begun: None, ended: None })
    }

    /// Records that all connections are established.
    pub(super) fn prepared(&mut self) -> anyhow::Result<()> {
        self.prepared = usage(&self.servers)?;
        Ok(())
    }

    /// Records that the measurement begins.
    pub(super) fn measuring(&mut self) -> anyhow::Result<()> {
        let servers = usage(&self.servers)?;
        self.begun = Some((Instant::now(), own_time(), servers));
        Ok(())
    }

    /// Records that the measurement is over.
    pub(super) fn measured(&mut self) -> anyhow::Result<()> {
        let end = (Instant::now(), own_time());
        self.ended = Some((end.0, end.1, usage(&self.servers)?));
        Ok(())
    }

    /// Returns the duration of the measurement.
    pub(super) fn time(&self) -> Duration {
        match (&self.begun, &self.ended) {
            (Some(begun), Some(ended)) => ended.0.saturating_duration_since(begun.0),
            _ => Duration::ZERO,
        }
    }

    /// Returns the CPU time of this process during the measurement.
    pub(super) fn own_cpu(&self) -> Duration {
        match (&self.begun, &self.ended) {
            (Some(begun), Some(ended)) => ended.1.saturating_sub(begun.1),
            _ => Duration::ZERO,
        }
    }

    /// Returns the usage of the servers, or `None` if no server was given.
    pub(super) fn servers(&self) -> Option<ServerCost> {
        let (Some((.., begun)), Some((.., ended))) = (&self.begun, &self.ended) else { return None };
        if self.servers.is_empty() {
            return None;
        }
        let mut used = UsageDifference::default();
        for (before, after) in begun.iter().zip(ended) {
            let one = after.since(before);
            used.cpu_nanoseconds += one.cpu_nanoseconds;
            used.context_switches += one.context_switches;
        }
        let resident = |all: &[ProcessCosts]| all.iter().map(|one| one.resident).sum();
        Some(ServerCost {
            used,
            resident_at_start: resident(&self.start),
            resident_prepared: resident(&self.prepared),
            resident_at_end: resident(ended),
        })
    }
}

fn usage(servers: &[u32]) -> anyhow::Result<Vec<ProcessCosts>> {
    servers.iter().map(|server| ProcessCosts::of(*server)).collect()
}

fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
