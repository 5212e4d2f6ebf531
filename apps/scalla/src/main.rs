//! The `scalla` binary: passes its arguments on and returns the exit status.

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
mod links;
mod local_path;
mod man;
mod map;
mod personality;
mod printer;
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

fn main() -> std::process::ExitCode {
    personality::run(std::env::args_os().collect())
}
