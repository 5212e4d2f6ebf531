//! `scalla cache simulate`: hit rates for recorded requests.

use crate::printer::out;
use crate::quantity::{bytes, show_bytes, show_count};
use ::cache::{
    SampleTrace, SampleTraceKind, SimulatedCache, SimulatedCounts, SimulatedPolicy, TraceReader,
    TraceRequest, TraceSize,
};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

/// Sizes that are simulated if none is chosen, in per cent of all bytes that the trace reads.
const DEFAULT_SIZES_PERCENT: [u64; 5] = [1, 5, 10, 20, 50];
/// Maximum number of sizes.
const SIZES_MAX: usize = 32;

/// Print the hit rates that caches of several sizes would have had.
///
/// The policy of Scalla's cache (S3-FIFO with TinyLFU) and that of XRootD's (least recently used) serve
/// the recorded requests, without data. A line of TRACE is a request: TIME FILE OFFSET LENGTH,
/// separated by blanks or commas. Lines that begin with # are skipped, and the time is not used.
#[derive(clap::Args, Debug)]
pub(super) struct SimulateCommand {
    /// File with the recorded requests.
    #[arg(required_unless_present = "sample", conflicts_with = "sample")]
    trace: Option<OsString>,
    /// Simulate requests of typical work instead: `analysis` or `production`.
    #[arg(long, value_name = "KIND", value_parser = sample_kind)]
    sample: Option<SampleTraceKind>,
    /// Number of requests of typical work.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "sample")]
    requests: u32,
    /// Number that selects the requests of typical work.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sample")]
    seed: u64,
    /// Sizes of the cache, such as 500g,2t. The default is 1, 5, 10, 20 and 50 % of the bytes that
    /// are read at least once.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = nonzero_bytes)]
    size: Vec<u64>,
    /// Size of the parts of files that are stored and removed.
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = unit_bytes)]
    unit: u64,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

fn sample_kind(text: &str) -> Result<SampleTraceKind, String> {
    let found = SampleTraceKind::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, kind)| kind).ok_or_else(|| "not analysis or production".to_owned())
}

fn nonzero_bytes(text: &str) -> Result<u64, String> {
    bytes(text).and_then(|size| if size > 0 { Ok(size) } else { Err("at least 1 byte".to_owned()) })
}

fn unit_bytes(text: &str) -> Result<u64, String> {
    bytes(text).and_then(|unit| match unit {
        512.. => Ok(unit),
        _ => Err("at least 512 bytes".to_owned()),
    })
}

/// The simulated caches of one size.
struct SizeResult {
    capacity: u64,
    counts: [SimulatedCounts; SimulatedPolicy::ALL.len()],
}

impl SimulateCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.size.len() > SIZES_MAX {
            bail!("--size has more than {SIZES_MAX} sizes");
        }
        let mut size = TraceSize::measure(self.trace()?, self.unit)?;
        if size.requests == 0 {
            bail!("the trace has no requests");
        }
        size.bytes = size.bytes.max(1);
        let sizes = if self.size.is_empty() {
            DEFAULT_SIZES_PERCENT.map(|percent| size.footprint / 100 * percent).to_vec()
        } else {
            self.size.clone()
        };
        let results = self.simulate(&sizes)?;
        if self.json {
            out().json(&as_json(size, self.unit, &results));
        } else {
            out().lines(as_table(size, self.unit, &results));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn trace(&self) -> anyhow::Result<Box<dyn Iterator<Item = anyhow::Result<TraceRequest>>>> {
        if let Some(kind) = self.sample {
            let trace = SampleTrace::new(kind, self.seed).take(self.requests as usize);
            return Ok(Box::new(trace.map(|request| request.map_err(anyhow::Error::from))));
        }
        let path = self.trace.as_deref().unwrap_or_default();
        let shown = base::shown(path.as_bytes()).to_string();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let trace = TraceReader::new(BufReader::new(file));
        Ok(Box::new(trace.map(move |request| request.with_context(|| shown.clone()))))
    }

    fn simulate(&self, sizes: &[u64]) -> anyhow::Result<Vec<SizeResult>> {
        let policies = SimulatedPolicy::ALL.map(|(_, policy)| policy);
        let caches =
            |capacity: &u64| policies.map(|policy| SimulatedCache::new(policy, *capacity, self.unit));
        let mut simulated: Vec<_> = sizes.iter().map(caches).collect();
        for request in self.trace()? {
            let request = request?;
            simulated.iter_mut().flatten().for_each(|cache| cache.serve(request));
        }
        let counts = simulated.into_iter().map(|caches| caches.map(|cache| cache.counts()));
        Ok(sizes.iter().zip(counts).map(|(&capacity, counts)| SizeResult { capacity, counts }).collect())
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn as_table(size: TraceSize, unit: u64, results: &[SizeResult]) -> String {
    let TraceSize { requests, bytes, footprint } = size;
    let mut text = format!(
        "{} requests for {}, {} of them different, in units of {}\n\n",
        show_count(requests),
        show_bytes(bytes as f64),
        show_bytes(footprint as f64),
        show_bytes(unit as f64),
    );
    text += "            requests served         bytes served            bytes written\n";
    text += "            from the cache          from the cache          to the cache\n";
    // Writing to a text cannot fail.
    write!(text, "{:<12}", "size").ok();
    for _ in 0..3 {
        for (name, _) in SimulatedPolicy::ALL {
            write!(text, "{name:<12}").ok();
        }
    }
    for SizeResult { capacity, counts } in results {
        write!(text, "\n{:<12}", show_bytes(*capacity as f64)).ok();
        let columns: [fn(&SimulatedCounts, TraceSize) -> String; 3] = [
            |counts, size| format!("{:.1} %", 100.0 * share(counts.hits, size.requests)),
            |counts, size| format!("{:.1} %", 100.0 * share(counts.hit_bytes, size.bytes)),
            |counts, _| show_bytes(counts.stored_bytes as f64),
        ];
        for column in columns {
            for counts in counts {
                write!(text, "{:<12}", column(counts, size)).ok();
            }
        }
    }
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn as_json(size: TraceSize, unit: u64, results: &[SizeResult]) -> Value {
    let of_size = |result: &SizeResult| {
        let of_policy = |((name, _), counts): (&(&str, SimulatedPolicy), &SimulatedCounts)| {
            let value = json!({
                "hits": counts.hits,
                "hit_bytes": counts.hit_bytes,
                "stored_bytes": counts.stored_bytes,
                "hit_rate": share(counts.hits, size.requests),
                "byte_hit_rate": share(counts.hit_bytes, size.bytes),
            });
            ((*name).to_owned(), value)
        };
        let policies = SimulatedPolicy::ALL.iter().zip(&result.counts).map(of_policy);
        json!({ "size": result.capacity, "policies": policies.collect::<serde_json::Map<_, _>>() })
    };
    json!({
        "requests": size.requests,
        "bytes": size.bytes,
        "different_bytes": size.footprint,
        "unit": unit,
        "caches": results.iter().map(of_size).collect::<Vec<_>>(),
    })
}
