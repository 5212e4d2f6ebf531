//! The `scalla` binary: runs the command line of the program as which it was started.

mod admin;
mod bench;
mod cli;
mod cluster;
mod completion;
mod config;
mod copy;
mod editor;
mod environment;
mod evaluation;
mod examples;
mod exit_status;
mod facts;
mod files;
mod hint;
mod invoked_as;
mod links;
mod local_path;
mod man;
mod map;
mod printer;
mod quantity;
mod serve;
mod servers;
mod shell;
mod stock;
mod sums;
mod usage_error;
mod version;
mod waiting;
mod xrdcp;
mod xrdfs;
mod xrdmapc;
mod xrdprep;
mod xrootd;

use invoked_as::Program;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let Some(program) = Program::invoked_as(arguments.first()) else { return cli::run(arguments) };
    let arguments = arguments.split_off(1);
    match program {
        Program::Xrootd => xrootd::run(arguments),
        Program::Cmsd => xrootd::stand_in(arguments),
        Program::Xrdcp | Program::Xrdcopy => xrdcp::run(arguments),
        Program::Xrdfs => xrdfs::run(arguments),
        Program::Xrdmapc => xrdmapc::run(arguments),
        Program::Xrdprep => xrdprep::run(arguments),
        Program::Xrdadler32 => sums::adler32(arguments),
        Program::Xrdcrc32c => sums::crc32c(arguments),
    }
}
