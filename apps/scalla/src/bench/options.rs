//! The command line of `scalla bench`.

use clap::{Args, Subcommand};
use std::time::Duration;

use super::pattern::GenerateCommand;
use crate::quantity;

/// Measure the throughput, latency and resource usage of a server.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  scalla bench gen DATA/big --size 1g
  scalla bench read root://host//big --size 2k --connections 64 --depth 8 --verify
  scalla bench stream root://host//big --duration 10s --server-pid 1234
  scalla bench open root://host//files/f%d --files 10000 --connections 64")]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    pub(super) load: LoadCommand,
}

#[derive(Subcommand, Debug)]
pub(super) enum LoadCommand {
    /// Read pieces of a file, by default at random offsets.
    Read(ReadLoad),
    /// Read a file from beginning to end, repeatedly.
    Stream(ReadLoad),
    /// Read many pieces with each request (kXR_readv).
    Readv(ReadvLoad),
    /// Read pieces with page checksums (kXR_pgread), as xrdcp does.
    Pgread(ReadLoad),
    /// Write a separate file on each connection, sequentially.
    Write(WriteLoad),
    /// Write a separate file on each connection, with page checksums (kXR_pgwrite), as xrdcp does.
    Pgwrite(WriteLoad),
    /// Open and close files; each pair is one operation.
    Open(PathLoad),
    /// Request the status of files.
    Stat(PathLoad),
    /// List a directory with the status of its entries.
    Dirlist(DirlistLoad),
    /// Connect, log in and disconnect.
    Connect(ConnectLoad),
    /// Keep idle connections that are logged in.
    Idle(ConnectLoad),
    /// Write files with the content that --verify expects.
    Gen(GenerateCommand),
}

/// Options of all loads.
#[derive(Args, Debug)]
pub(super) struct LoadOptions {
    #[allow(rustdoc::broken_intra_doc_links, reason = "help text")]
    /// root://HOST[:PORT]//PATH or roots://...; %d in the path is replaced by a number (see
    /// --files). The login uses the credentials of the user, if the server demands any.
    pub(super) url: String,
    /// Number of concurrent connections.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) connections: u32,
    /// Duration of the measurement.
    #[arg(short = 't', long, value_name = "TIME", default_value = "5s", value_parser = quantity::time)]
    pub(super) duration: Duration,
    /// Duration of the load before the measurement.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = quantity::time)]
    pub(super) warmup: Duration,
    /// Stop after this number of operations, and measure from the first one on.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) operations: Option<u64>,
    /// Run on this processor only.
    #[arg(long, value_name = "NUMBER")]
    pub(super) cpu: Option<u32>,
    /// Report the resource usage of this server process on this machine; may be repeated.
    #[arg(long, value_name = "PID")]
    pub(super) server_pid: Vec<u32>,
    /// Poll instead of sleeping, which excludes the wake-up time from the latency.
    #[arg(long)]
    pub(super) spin: bool,
    /// Resume TLS sessions, as programs do that connect again. By default each connection has a
    /// full handshake.
    #[arg(long)]
    pub(super) resume: bool,
    /// Print the report as a JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Concurrent requests.
#[derive(Args, Debug)]
pub(super) struct DepthOption {
    /// Number of requests in flight on each connection.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(super) depth: u32,
}

/// Files to use.
#[derive(Args, Debug)]
pub(super) struct FileCountOption {
    /// Number of files that %d in the path stands for, from 0.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) files: u32,
}

#[derive(Args, Debug)]
pub(super) struct ReadLoad {
    #[command(flatten)]
    pub(super) common: LoadOptions,
    #[command(flatten)]
    pub(super) depth: DepthOption,
    #[command(flatten)]
    pub(super) files: FileCountOption,
    /// Bytes of each request; of several sizes, each request uses a random one.
    /// [default: 2k, stream: 1m]
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = quantity::request_bytes)]
    pub(super) size: Vec<u32>,
    /// Read sequentially.
    #[arg(long)]
    pub(super) sequential: bool,
    /// Align offsets to multiples of SIZE.
    #[arg(long, value_name = "SIZE", default_value = "1", value_parser = quantity::bytes)]
    pub(super) align: u64,
    #[command(flatten)]
    pub(super) check: DataCheckOptions,
}

/// Handling of received data.
#[derive(Args, Debug)]
pub(super) struct DataCheckOptions {
    /// Compare each byte with the content that `scalla bench gen` writes, and verify each checksum.
    #[arg(long, conflicts_with = "discard")]
    pub(super) verify: bool,
    /// Discard large data in the kernel, to measure the server's limit instead of this client's.
    #[arg(long)]
    pub(super) discard: bool,
}

#[derive(Args, Debug)]
pub(super) struct ReadvLoad {
    #[command(flatten)]
    pub(super) common: LoadOptions,
    #[command(flatten)]
    pub(super) depth: DepthOption,
    #[command(flatten)]
    pub(super) files: FileCountOption,
    /// Size of each piece in bytes.
    #[arg(short, long, value_name = "SIZE", default_value = "3k", value_parser = quantity::request_bytes)]
    pub(super) size: u32,
    /// Number of pieces of each request.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) segments: u32,
    /// Order the pieces of a request with random gaps of at most SIZE bytes. By default, each piece
    /// is at a random offset.
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub(super) gap: Option<u64>,
    /// Align offsets to multiples of SIZE.
    #[arg(long, value_name = "SIZE", default_value = "1", value_parser = quantity::bytes)]
    pub(super) align: u64,
    #[command(flatten)]
    pub(super) check: DataCheckOptions,
}

#[derive(Args, Debug)]
pub(super) struct WriteLoad {
    #[command(flatten)]
    pub(super) common: LoadOptions,
    #[command(flatten)]
    pub(super) depth: DepthOption,
    /// Bytes of each request; of several sizes, each request uses a random one.
    #[arg(short, long, value_name = "SIZE", default_value = "64k", value_delimiter = ',', value_parser = quantity::request_bytes)]
    pub(super) size: Vec<u32>,
    /// Restart at offset 0 when the file of a connection has this size.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = quantity::bytes)]
    pub(super) file_size: u64,
    /// Read all data back at the end and compare each byte.
    #[arg(long)]
    pub(super) verify: bool,
    /// Keep the files at the end.
    #[arg(long)]
    pub(super) keep: bool,
}

#[derive(Args, Debug)]
pub(super) struct PathLoad {
    #[command(flatten)]
    pub(super) common: LoadOptions,
    #[command(flatten)]
    pub(super) depth: DepthOption,
    #[command(flatten)]
    pub(super) files: FileCountOption,
    /// Use the files in order.
    #[arg(long)]
    pub(super) sequential: bool,
    /// Expect that the files do not exist: the error for a missing file is the correct answer.
    #[arg(long)]
    pub(super) missing: bool,
}

#[derive(Args, Debug)]
pub(super) struct DirlistLoad {
    #[command(flatten)]
    pub(super) common: LoadOptions,
    #[command(flatten)]
    pub(super) depth: DepthOption,
    /// Request names only, without status.
    #[arg(long)]
    pub(super) plain: bool,
    /// Parse each listing and compare the numbers of entries.
    #[arg(long)]
    pub(super) verify: bool,
}

#[derive(Args, Debug)]
pub(super) struct ConnectLoad {
    #[command(flatten)]
    pub(super) common: LoadOptions,
}
