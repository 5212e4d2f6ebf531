//! `make bench`: compares our server with XRootD, load by load in interleaved pairs.
//!
//! Both are also compared with the floor, a server that replies from memory without files and
//! sessions. The floor exists because it shows the share of the kernel.
//!
//! | file       | contents                                          |
//! |------------|---------------------------------------------------|
//! | `row`      | the description of a load and its goals           |
//! | `rows`     | all loads                                         |
//! | `figures`  | the measured figures and goals for them           |
//! | `secured`  | loads with authentication and TLS                 |
//! | `server`   | a running server                                  |
//! | `servers`  | start and stop of the servers                     |
//! | `agents`   | many cluster nodes in few processes               |
//! | `floor`    | the floor                                         |
//! | `cipher_floor` | the cipher alone, as the floor of encrypted loads |
//! | `site`     | clusters of Scalla and of XRootD                  |
//! | `slow`     | our server on a slow or rate-limited storage      |
//! | `proxies`  | proxies of both sides in front of one origin      |
//! | `proxy_rows` | loads of proxies and caches                     |
//! | `proxy_loads` | those that are more than one run of `scalla bench` |
//! | `stage_requests` | requests to stage files                    |
//! | `web_rows` | loads of HTTP, by `wrk`                         |
//! | `relay`    | a network that limits the rate of each connection |
//! | `clients`  | loads that compare clients                        |
//! | `many_open_files` | a client with thousands of open files      |
//! | `data`     | the directories of a run                          |
//! | `exported_files` | the files that the loads need               |
//! | `measure`  | one load on one server                            |
//! | `children` | child processes with a deadline                   |
//! | `cold`     | eviction of a file from the page cache            |
//! | `process`  | resources of a process, as in `scalla bench`      |
//! | `machine`  | the machine of a measurement                      |
//! | `outcome`  | medians, ratios, goals met                        |
//! | `report`   | tables and JSON                                   |
//! | `page`     | the page in `docs`                                |

mod agents;
mod bare_server;
mod children;
mod cipher_floor;
mod clients;
mod cold;
mod data;
mod exported_files;
mod figures;
mod floor;
mod machine;
mod many_open_files;
mod measure;
mod outcome;
mod page;
mod proxies;
mod proxy_loads;
mod proxy_rows;
mod relay;
mod report;
mod row;
mod rows;
mod secured;
mod server;
mod servers;
mod site;
mod slow;
mod stage_requests;
mod web_rows;

use anyhow::{Context, bail};
use clap::Parser;
use data::Data;
use machine::TestMachine;
use measure::Measure;
use report::BenchResults;
use row::Row;
use servers::Fleet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Path of the page on performance, relative to the repository.
const PAGE: &str = "docs/performance.md";

/// Compare our server with XRootD, load by load.
#[derive(Parser, Debug)]
#[command(name = "bench")]
pub(crate) struct Options {
    /// Run only loads whose name contains one of these texts.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the loads and their goals.
    #[arg(long)]
    list: bool,
    /// Measure two pairs of one second each, for a quick estimate.
    #[arg(long)]
    quick: bool,
    /// Pairs for each load. [default: 5, quick: 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// Seconds of each measurement, such as 0.5. Many short pairs are less sensitive to other
    /// guests than few long ones. [default: 3, quick: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Path of our program. [default: the one in the directory of this program]
    #[arg(long, value_name = "FILE")]
    scalla: Option<PathBuf>,
    /// Argument for our server in every load; may be given several times.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    ours: Vec<String>,
    /// Directory for the exported files; not on tmpfs, which does not support reads without
    /// waiting.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    disk: PathBuf,
    /// Directory for the results as JSON and Markdown.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Copy the last results into the page on performance, without measuring.
    #[arg(long)]
    write_docs: bool,
    /// Run the floor: the server that replies from memory.
    #[arg(long, hide = true)]
    floor: bool,
    /// Run the bare server: the floor with the files of this directory.
    #[arg(long, hide = true, value_name = "DIR")]
    bare: Option<PathBuf>,
    /// Poll briefly before sleeping; with --floor or --bare.
    #[arg(long, hide = true)]
    polling: bool,
    /// Run this number of cluster nodes.
    #[arg(long, hide = true, requires = "agents_are")]
    agents: Option<usize>,
    /// Kind of the cluster nodes.
    #[arg(long, hide = true)]
    agents_are: Option<agents::AgentKind>,
    /// Cluster port of their manager, on this host.
    #[arg(long, hide = true, default_value_t = 0)]
    manager: u16,
    /// Run our server on a slow storage: the exported directory and a work directory.
    #[arg(long, hide = true, num_args = 2)]
    slow: Option<Vec<PathBuf>>,
    /// Run our rate-limited server: as `--slow`, then bytes per second for each connection and for
    /// all.
    #[arg(long, hide = true, num_args = 4)]
    limited: Option<Vec<String>>,
    /// Run a client with many open files: the URL of their directory and their number.
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
        many_open_files::read(base, count.parse()?)?;
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
        bail!("no load matches; run with --list for the names");
    }
    if options.list {
        print!("{}", report::list(&rows));
        return Ok(ExitCode::SUCCESS);
    }
    let results = run(&options, rows)?;
    let good = results.loads.iter().all(|outcome| outcome.error.is_none());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the given program, or the one in the directory of this program.
fn program(options: &Options) -> anyhow::Result<PathBuf> {
    let program = match &options.scalla {
        Some(program) => program.clone(),
        None => {
            let own = std::env::current_exe().context("cannot determine the path of this program")?;
            own.with_file_name("scalla")
        }
    };
    program.canonicalize().with_context(|| {
        format!("cannot find our program at {}: run `make build` or name it (--scalla)", program.display())
    })
}

fn run(options: &Options, rows: Vec<Row>) -> anyhow::Result<BenchResults> {
    let program = program(options)?;
    if !Path::new(server::XROOTD).exists() {
        bail!("{} is missing: run `make peers`", server::XROOTD);
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("server and generator need one processor each, but this machine has only one");
    }
    children::allow_descriptors()?;
    let machine = TestMachine::look(&options.disk);
    eprint!("{}", machine.text());
    let data = Data::make(&program, &options.disk)?;
    exported_files::write(&data, &rows, outcome::measurements(options.pairs()))?;
    let mut fleet = Fleet::new(&data, &options.ours);
    let measure =
        Measure { program: data.program(), data: &data, time: options.time(), quick: options.quick };
    let mut results = BenchResults {
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
        // Results are written after each load, so that a later failure does not lose them.
        report::write(&options.out, &results)?;
    }
    print!("{}", report::text(&results.loads));
    println!("\nwritten: {}", options.out.join("performance.md").display());
    Ok(results)
}
