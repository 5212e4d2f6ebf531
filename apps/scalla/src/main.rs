//! The `scalla` binary: runs the command line of the program as which it was started.

mod admin;
mod auth;
mod bench;
mod cache;
mod checksum_programs;
mod cli;
mod cluster;
mod command_groups;
mod completion;
mod config;
mod copy;
mod editor;
mod environment;
mod evaluation;
mod examples;
mod exit_status;
mod file_owner;
mod files;
mod frm_admin;
mod frm_daemon;
mod grid_proxy;
mod invoked_as;
mod json_failures;
mod links;
mod local_path;
mod local_time;
mod man;
mod map;
mod mpxstats;
mod name_suggestions;
mod named_servers;
mod printer;
mod quantity;
mod quoting;
mod residency;
mod rule_check;
mod serve;
mod shell;
mod tls_option;
mod usage_error;
mod version;
mod wait_display;
mod xrdacctest;
mod xrdcp;
mod xrdfs;
mod xrdgsiproxy;
mod xrdmapc;
mod xrdpfc_print;
mod xrdprep;
mod xrdpwdadmin;
mod xrdsssadmin;
mod xrootd;
mod xrootd_compat;

use invoked_as::InvokedProgram;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let Some(program) = InvokedProgram::invoked_as(arguments.first()) else { return cli::run(arguments) };
    let arguments = arguments.split_off(1);
    match program {
        InvokedProgram::Xrootd => xrootd::run(arguments),
        InvokedProgram::Cmsd => xrootd::stand_in(arguments),
        InvokedProgram::FrmAdmin => frm_admin::run(arguments),
        InvokedProgram::FrmPurged => frm_daemon::purged(arguments),
        InvokedProgram::FrmXfragent => frm_daemon::agent(arguments),
        InvokedProgram::FrmXfrd => frm_daemon::xfrd(arguments),
        InvokedProgram::Mpxstats => mpxstats::run(arguments),
        InvokedProgram::Xrdcp | InvokedProgram::Xrdcopy => xrdcp::run(arguments),
        InvokedProgram::Xrdfs => xrdfs::run(arguments),
        InvokedProgram::Xrdmapc => xrdmapc::run(arguments),
        InvokedProgram::Xrdprep => xrdprep::run(arguments),
        InvokedProgram::Xrdacctest => xrdacctest::run(arguments),
        InvokedProgram::Xrdadler32 => checksum_programs::adler32(arguments),
        InvokedProgram::Xrdcrc32c => checksum_programs::crc32c(arguments),
        InvokedProgram::Xrdgsiproxy => xrdgsiproxy::run(arguments),
        InvokedProgram::XrdpfcPrint => xrdpfc_print::run(arguments),
        InvokedProgram::Xrdpwdadmin => xrdpwdadmin::run(arguments),
        InvokedProgram::Xrdsssadmin => xrdsssadmin::run(arguments),
    }
}
