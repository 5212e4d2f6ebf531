//! The command line of `scalla bench`.

use clap::{Args, Subcommand};
use std::time::Duration;

use super::pattern::Generate;
use super::quantity;

/// Measure a server: how much it does, how long each request takes, what that costs it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  scalla bench gen DATA/big --size 1g
  scalla bench read root://host//big --size 2k --connections 64 --depth 8 --verify
  scalla bench stream root://host//big --duration 10s --server-pid 1234
  scalla bench open root://host//files/f%d --files 10000 --connections 64")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(super) load: LoadKind,
}

#[derive(Subcommand, Debug)]
pub(super) enum LoadKind {
    /// Read pieces of a file, at random places unless told otherwise.
    Read(Read),
    /// Read a file from its beginning, over and over.
    Stream(Read),
    /// Read many pieces with each request (kXR_readv).
    Readv(Readv),
    /// Read pieces with page checksums (kXR_pgread), as xrdcp does.
    Pgread(Read),
    /// Write a file of its own on each connection, one piece after the other.
    Write(Write),
    /// The same with page checksums (kXR_pgwrite), as xrdcp does.
    Pgwrite(Write),
    /// Open files and close them again; the pair is one operation.
    Open(Names),
    /// Ask for the status of files.
    Stat(Names),
    /// List a directory with the status of its entries.
    Dirlist(Directory),
    /// Connect, log in and disconnect.
    Connect(Connect),
    /// Keep logged-in connections that do nothing.
    Idle(Connect),
    /// Write a file whose content --verify knows.
    Gen(Generate),
}

/// What every load has.
#[derive(Args, Debug)]
pub(super) struct Common {
    /// root://HOST[:PORT]//PATH; %d in the path stands for a number (see --files).
    pub(super) url: String,
    /// Connections at the same time.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) connections: u32,
    /// How long to measure.
    #[arg(short = 't', long, value_name = "TIME", default_value = "5s", value_parser = quantity::time)]
    pub(super) duration: Duration,
    /// How long to load the server before that.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = quantity::time)]
    pub(super) warmup: Duration,
    /// Stop after so many operations; they are measured from the first one on.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) operations: Option<u64>,
    /// Stay on this processor.
    #[arg(long, value_name = "NUMBER")]
    pub(super) cpu: Option<u32>,
    /// Process of the server on this machine: report what it uses. May be given several times.
    #[arg(long, value_name = "PID")]
    pub(super) server_pid: Vec<u32>,
    /// Never sleep: takes the time to wake up out of the latency.
    #[arg(long)]
    pub(super) spin: bool,
    /// Report as a JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Requests at the same time.
#[derive(Args, Debug)]
pub(super) struct Depth {
    /// Requests in flight on each connection.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(super) depth: u32,
}

/// Which files.
#[derive(Args, Debug)]
pub(super) struct Files {
    /// How many files %d in the path stands for, from 0.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) files: u32,
}

#[derive(Args, Debug)]
pub(super) struct Read {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) depth: Depth,
    #[command(flatten)]
    pub(super) files: Files,
    /// Bytes of each request; of several sizes each request takes one at random. [default: 2k, stream: 1m]
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = quantity::request_bytes)]
    pub(super) size: Vec<u32>,
    /// Read one piece after the other.
    #[arg(long)]
    pub(super) sequential: bool,
    /// Begin at multiples of this.
    #[arg(long, value_name = "SIZE", default_value = "1", value_parser = quantity::bytes)]
    pub(super) align: u64,
    #[command(flatten)]
    pub(super) check: Check,
}

/// What to do with data that comes.
#[derive(Args, Debug)]
pub(super) struct Check {
    /// Compare every byte with what `scalla bench gen` writes, and every checksum.
    #[arg(long, conflicts_with = "discard")]
    pub(super) verify: bool,
    /// Throw large data away in the kernel: shows the server's limit rather than this client's.
    #[arg(long)]
    pub(super) discard: bool,
}

#[derive(Args, Debug)]
pub(super) struct Readv {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) depth: Depth,
    #[command(flatten)]
    pub(super) files: Files,
    /// Bytes of each piece.
    #[arg(short, long, value_name = "SIZE", default_value = "3k", value_parser = quantity::request_bytes)]
    pub(super) size: u32,
    /// Pieces of each request.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) segments: u32,
    /// The pieces of a request follow each other with random gaps of at most this; without it each is at a random place.
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub(super) gap: Option<u64>,
    /// Begin at multiples of this.
    #[arg(long, value_name = "SIZE", default_value = "1", value_parser = quantity::bytes)]
    pub(super) align: u64,
    #[command(flatten)]
    pub(super) check: Check,
}

#[derive(Args, Debug)]
pub(super) struct Write {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) depth: Depth,
    /// Bytes of each request; of several sizes each request takes one at random.
    #[arg(short, long, value_name = "SIZE", default_value = "64k", value_delimiter = ',', value_parser = quantity::request_bytes)]
    pub(super) size: Vec<u32>,
    /// Begin again when the file of a connection has this size.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = quantity::bytes)]
    pub(super) file_size: u64,
    /// Read everything back at the end and compare every byte.
    #[arg(long)]
    pub(super) verify: bool,
    /// Leave the files there.
    #[arg(long)]
    pub(super) keep: bool,
}

#[derive(Args, Debug)]
pub(super) struct Names {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) depth: Depth,
    #[command(flatten)]
    pub(super) files: Files,
    /// Take the files one after the other.
    #[arg(long)]
    pub(super) sequential: bool,
    /// The files do not exist: that they are missing is the good answer.
    #[arg(long)]
    pub(super) missing: bool,
}

#[derive(Args, Debug)]
pub(super) struct Directory {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) depth: Depth,
    /// Names only, without status.
    #[arg(long)]
    pub(super) plain: bool,
    /// Take every listing apart and compare the numbers of entries.
    #[arg(long)]
    pub(super) verify: bool,
}

#[derive(Args, Debug)]
pub(super) struct Connect {
    #[command(flatten)]
    pub(super) common: Common,
}
