//! The report of a load, as text and as JSON.

use serde_json::{Value, json};
use std::fmt::Write;

use super::generator::LoadResult;
use super::load_plan::{LoadPlan, OperationKind};
use super::resource_usage::ServerCost;
use crate::quantity::{show_bytes, show_count, show_time};

/// Reported latency quantiles: name and share of operations.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// The result of a load.
pub(super) struct BenchReport<'r> {
    plan: &'r LoadPlan,
    result: &'r LoadResult,
    seconds: f64,
    operations: f64,
    server: Option<ServerCost>,
}

impl<'r> BenchReport<'r> {
    pub(super) fn new(plan: &'r LoadPlan, ran: &'r LoadResult) -> Self {
        Self {
            plan,
            result: ran,
            seconds: ran.resources.time().as_secs_f64(),
            operations: ran.counters.operations as f64,
            server: ran.resources.servers(),
        }
    }

    /// Reports whether no error occurred.
    pub(super) fn is_good(&self) -> bool {
        self.result.counters.errors == 0
            && (self.result.counters.operations > 0 || self.plan.kind == OperationKind::Idle)
    }

    fn per_second(&self, count: f64) -> f64 {
        if self.seconds > 0.0 { count / self.seconds } else { 0.0 }
    }

    fn per_operation(&self, amount: f64) -> f64 {
        if self.operations > 0.0 { amount / self.operations } else { 0.0 }
    }

    /// Formats the report as text.
    pub(super) fn text(&self) -> String {
        let mut out = format!("{}\n", self.headline());
        let mut line = |name: &str, text: String| {
            // Writing to a text cannot fail.
            writeln!(out, "  {name:<12}{text}").ok();
        };
        let tally = &self.result.counters;
        if self.plan.kind != OperationKind::Idle {
            if tally.bytes > 0 {
                line("throughput", format!("{}/s", show_bytes(self.per_second(tally.bytes as f64))));
            }
            let (rate, count) = (self.per_second(self.operations), show_count(tally.operations));
            line(
                "operations",
                format!("{}/s  ({count} in {:.2} s)", show_count(rate.round() as u64), self.seconds),
            );
            let mut latency = String::new();
            for (name, quantile) in QUANTILES {
                let value = tally.latency.value_at_quantile(quantile) as f64;
                write!(latency, "{name} {}  ", show_time(value)).ok();
            }
            line("latency", format!("{latency}max {}", show_time(tally.latency.max() as f64)));
            line("this client", self.cost(self.result.resources.own_cpu().as_nanos() as f64));
        }
        if let Some(server) = &self.server {
            line("server", self.server_text(server));
            line("memory", self.memory_text(server));
        }
        if tally.waits > 0 || tally.redirects > 0 {
            line("sent away", format!("{} to wait, {} elsewhere", tally.waits, tally.redirects));
        }
        match &tally.first_error {
            Some(first) => line("ERRORS", format!("{}; the first: {first}", show_count(tally.errors))),
            None if !self.is_good() => line("ERRORS", "no operation was completed".to_owned()),
            None if self.plan.verify => line("errors", "none, all data as it should be".to_owned()),
            None => line("errors", "none".to_owned()),
        }
        out
    }

    fn headline(&self) -> String {
        let plan = self.plan;
        let mut out = plan.name.to_owned();
        if plan.kind.moves_data() {
            let sizes: Vec<_> = plan.sizes.iter().map(|size| show_bytes(f64::from(*size))).collect();
            let pieces = if plan.kind == OperationKind::Readv {
                format!("{} x ", plan.segments)
            } else {
                String::new()
            };
            write!(out, " {pieces}{}", sizes.join(" or ")).ok();
            out.push_str(match (plan.kind, plan.sequential, plan.gap) {
                (OperationKind::Readv, _, Some(_)) => ", clustered",
                (_, true, _) => ", sequential",
                _ => ", random",
            });
            if plan.align > 1 {
                write!(out, ", aligned to {}", show_bytes(plan.align as f64)).ok();
            }
        } else if plan.files > 1 {
            write!(out, " of {} files", show_count(plan.files.into())).ok();
        }
        let connections = if plan.connections == 1 { "connection" } else { "connections" };
        write!(out, ", {} {connections}", show_count(plan.connections as u64)).ok();
        if !matches!(plan.kind, OperationKind::Connect | OperationKind::Idle) {
            write!(out, ", {} in flight on each", plan.depth).ok();
        }
        write!(out, "  {} ({})", plan.url, self.result.address).ok();
        out
    }

    /// Formats a CPU time.
    fn cost(&self, nanoseconds: f64) -> String {
        let share = if self.seconds > 0.0 { nanoseconds / 1e7 / self.seconds } else { 0.0 };
        format!(
            "{} of processor time per operation, {share:.0} % of a processor",
            show_time(self.per_operation(nanoseconds))
        )
    }

    fn server_text(&self, server: &ServerCost) -> String {
        let switches = self.per_operation(server.used.context_switches as f64);
        let cost = self.cost(server.used.cpu_nanoseconds as f64);
        if self.plan.kind == OperationKind::Idle {
            let share = server.used.cpu_nanoseconds as f64 / 1e7 / self.seconds.max(1e-9);
            return format!("{share:.1} % of a processor");
        }
        format!("{cost}, {switches:.3} context switches per operation")
    }

    fn memory_text(&self, server: &ServerCost) -> String {
        let each = self.bytes_per_connection(server);
        let (start, prepared, end) = (
            show_bytes(server.resident_at_start as f64),
            show_bytes(server.resident_prepared as f64),
            show_bytes(server.resident_at_end as f64),
        );
        format!("{start} at first, {prepared} when connected ({} each), {end} at the end", show_bytes(each))
    }

    fn bytes_per_connection(&self, server: &ServerCost) -> f64 {
        let grown = server.resident_prepared as f64 - server.resident_at_start as f64;
        grown.max(0.0) / self.plan.connections as f64
    }

    /// Formats the report as JSON. The names of fields contain the units.
    pub(super) fn json(&self) -> Value {
        let (plan, tally) = (self.plan, &self.result.counters);
        let micros = |nanoseconds: f64| (nanoseconds / 10.0).round() / 100.0;
        let quantile = |quantile| micros(tally.latency.value_at_quantile(quantile) as f64);
        let own = self.result.resources.own_cpu().as_nanos() as f64;
        let mut out = json!({
            "load": plan.name,
            "url": plan.url.to_string(),
            "sizes_bytes": if plan.kind.moves_data() { plan.sizes.clone() } else { Vec::new() },
            "connections": plan.connections,
            "depth": plan.depth,
            "seconds": self.seconds,
            "operations": tally.operations,
            "operations_per_second": self.per_second(self.operations),
            "bytes": tally.bytes,
            "bytes_per_second": self.per_second(tally.bytes as f64),
            "latency_us": {
                "mean": micros(tally.latency.mean()),
                "p50": quantile(0.5),
                "p90": quantile(0.9),
                "p99": quantile(0.99),
                "p99.9": quantile(0.999),
                "max": micros(tally.latency.max() as f64),
            },
            "client_cpu_us_per_operation": micros(self.per_operation(own)),
            "waits": tally.waits,
            "redirects": tally.redirects,
            "errors": tally.errors,
            "first_error": tally.first_error,
            "verified": plan.verify,
        });
        if let Some(server) = &self.server {
            let used = server.used;
            out["server"] = json!({
                "cpu_us_per_operation": micros(self.per_operation(used.cpu_nanoseconds as f64)),
                "cpu_seconds": used.cpu_nanoseconds as f64 / 1e9,
                "context_switches_per_operation": self.per_operation(used.context_switches as f64),
                "resident_bytes_at_start": server.resident_at_start,
                "resident_bytes_connected": server.resident_prepared,
                "resident_bytes_at_end": server.resident_at_end,
                "resident_bytes_per_connection": self.bytes_per_connection(server),
            });
        }
        out
    }
}
