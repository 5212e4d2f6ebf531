//! `make bench`: our server against the real xrootd on the same files, load by load in interleaved pairs, and both against
//! the floor: a server that answers from memory and knows neither files nor sessions.
//!
//! | file | what it holds |
//! |---|---|
//! | `rows` | the loads, and what is asked of us in each |
//! | `figures` | what is measured of a load, and goals for it |
//! | `servers` | starts and stops the three servers |
//! | `agents` | many nodes of a cluster in few processes |
//! | `floor` | the third of them |
//! | `site` | clusters, ours and real ones |
//! | `slow` | ours on a storage that takes its time, or gives so much in a second |
//! | `relay` | a network that gives each connection so much in a second |
//! | `clients` | our client and theirs, and from several servers at once |
//! | `crowd` | a client with thousands of open files |
//! | `data` | the files they serve |
//! | `measure` | one load on one server |
//! | `children` | programs that end with us, and in time |
//! | `cold` | keeps a file out of the page cache |
//! | `process` | what a process uses, as `scalla bench` counts it |
//! | `machine` | on what it was measured |
//! | `outcome` | medians, ratios, goals met |
//! | `report` | tables and JSON |
//! | `page` | the page in `docs` |

mod agents;
mod bare;
mod children;
mod clients;
mod cold;
mod crowd;
mod data;
mod figures;
mod floor;
mod machine;
mod measure;
mod outcome;
mod page;
#[path = "../../../apps/scalla/src/bench/process.rs"]
mod process;
mod relay;
mod report;
mod rows;
mod servers;
mod site;
mod slow;

use anyhow::{Context, bail};
use clap::Parser;
use data::Data;
use machine::Machine;
use measure::Measure;
use report::Results;
use rows::Row;
use servers::Fleet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The page on performance, from the top of the repository.
const PAGE: &str = "docs/performance.md";

/// Measure our server against the real xrootd, load by load.
#[derive(Parser, Debug)]
#[command(name = "bench")]
pub(crate) struct Options {
    /// Only loads whose name holds one of these texts.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the loads and their goals, and end.
    #[arg(long)]
    list: bool,
    /// Two pairs of one second each: a look, not a measurement.
    #[arg(long)]
    quick: bool,
    /// Pairs for each load. [default: 5, quick: 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// Seconds of each measurement, such as 0.5: many short pairs bear a neighbour's noise better than few long ones. [default:
    /// 3, quick: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Our program. [default: the one beside this]
    #[arg(long, value_name = "FILE")]
    scalla: Option<PathBuf>,
    /// Argument for our server in every load, such as one of its options; may be given several times.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    ours: Vec<String>,
    /// Where files are served from; not tmpfs, where reads cannot be told not to wait.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    disk: PathBuf,
    /// Where to write the results as JSON and Markdown.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Put the last results into the page on performance, and end; nothing is measured.
    #[arg(long)]
    write_docs: bool,
    /// Be the floor: the server that answers from memory.
    #[arg(long, hide = true)]
    floor: bool,
    /// Be the bare server: the floor with the files of this folder.
    #[arg(long, hide = true, value_name = "DIR")]
    bare: Option<PathBuf>,
    /// As one of them, look for the next request for a moment before sleeping.
    #[arg(long, hide = true)]
    polling: bool,
    /// Be so many nodes of a cluster.
    #[arg(long, hide = true, requires = "agents_are")]
    agents: Option<usize>,
    /// What they are.
    #[arg(long, hide = true)]
    agents_are: Option<agents::Kind>,
    /// The cluster port of their manager, on this host.
    #[arg(long, hide = true, default_value_t = 0)]
    manager: u16,
    /// Be our server on a storage that takes its time: the folder to serve, and one for itself.
    #[arg(long, hide = true, num_args = 2)]
    slow: Option<Vec<PathBuf>>,
    /// Be our server that gives so many bytes a second: as `--slow`, then to a connection, then to all.
    #[arg(long, hide = true, num_args = 4)]
    limited: Option<Vec<String>>,
    /// Be a client with many open files: a URL below which they are, and how many.
    #[arg(long, hide = true, num_args = 2)]
    crowd: Option<Vec<String>>,
}

impl Options {
    fn pairs(&self) -> u32 {
        self.pairs.unwrap_or(if self.quick { 2 } else { 5 })
    }

    fn time(&self) -> Duration {
        self.seconds.unwrap_or(Duration::from_secs(if self.quick { 1 } else { 3 }))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|seconds| (Duration::from_millis(100)..=Duration::from_secs(600)).contains(seconds))
        .ok_or_else(|| "seconds from 0.1 to 600".to_owned())
}

fn main() -> ExitCode {
    work().unwrap_or_else(|error| {
        eprintln!("bench: error: {error:#}");
        ExitCode::FAILURE
    })
}

fn work() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if options.floor || options.bare.is_some() {
        floor::serve(options.bare.as_deref(), options.polling)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(count), Some(kind)) = (options.agents, options.agents_are) {
        agents::serve(kind, count, options.manager)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some([tree, work]) = options.slow.as_deref() {
        slow::serve(tree, work)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some([tree, work, connection, server]) = options.limited.as_deref() {
        slow::serve_limited(Path::new(tree), Path::new(work), connection.parse()?, server.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some([base, count]) = options.crowd.as_deref() {
        crowd::read(base, count.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.write_docs {
        page::write(Path::new(PAGE), &report::read(&options.out)?)?;
        println!("written: {PAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let wanted =
        |row: &Row| options.only.is_empty() || options.only.iter().any(|text| row.name.contains(text));
    let rows: Vec<Row> = rows::all().into_iter().filter(wanted).collect();
    if rows.is_empty() {
        bail!("no load has a name like that; --list shows them");
    }
    if options.list {
        print!("{}", report::list(&rows));
        return Ok(ExitCode::SUCCESS);
    }
    let results = run(&options, rows)?;
    let good = results.loads.iter().all(|outcome| outcome.error.is_none());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The program beside this one, or the one named.
fn program(options: &Options) -> anyhow::Result<PathBuf> {
    let program = match &options.scalla {
        Some(program) => program.clone(),
        None => {
            let own = std::env::current_exe().context("cannot find out where this program is")?;
            own.with_file_name("scalla")
        }
    };
    program.canonicalize().with_context(|| {
        format!("cannot find our program at {}: run `make build` or name it (--scalla)", program.display())
    })
}

fn run(options: &Options, rows: Vec<Row>) -> anyhow::Result<Results> {
    let program = program(options)?;
    if !Path::new(servers::XROOTD).exists() {
        bail!("{} is missing: run `make peers`", servers::XROOTD);
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("server and generator need a processor each, and there is one only");
    }
    children::allow_descriptors()?;
    let machine = Machine::look(&options.disk);
    eprint!("{}", machine.text());
    let data = Data::make(&program, &options.disk, &rows, outcome::measurements(options.pairs()))?;
    let mut fleet = Fleet::new(&data, &options.ours);
    let measure =
        Measure { program: data.program(), data: &data, time: options.time(), quick: options.quick };
    let mut results = Results {
        machine,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pairs: options.pairs(),
        seconds: options.time().as_secs_f64(),
        ours_arguments: options.ours.clone(),
        loads: Vec::new(),
    };
    for (index, row) in rows.iter().enumerate() {
        eprintln!("[{}/{}] {}: {}", index + 1, rows.len(), row.name, row.title);
        let outcome = outcome::of(row, &mut fleet, &measure, options.pairs());
        eprint!("{}", report::progress(&outcome));
        results.loads.push(outcome);
        results.machine.look_again();
        // What is measured stays, whatever happens later.
        report::write(&options.out, &results)?;
    }
    print!("{}", report::text(&results.loads));
    println!("\nwritten: {}", options.out.join("performance.md").display());
    Ok(results)
}
