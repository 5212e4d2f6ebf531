//! A server to which the kernel refuses some system calls, as old kernels and some containers do.

use super::{Scratch, Server};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::thread;

/// A system call to be refused, and where that depends on it: the number and the least value of an argument.
pub(crate) type Refused = (libc::c_long, Option<(u8, u64)>);

/// Starts the server with system calls refused to it by this error.
pub(crate) fn start_without(scratch: &Scratch, calls: &[Refused], error: i32) -> Server {
    let rule = |&(call, condition): &Refused| {
        let rules = condition.map(|(argument, least)| {
            let with = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ge, least);
            SeccompRule::new(vec![with.unwrap()]).unwrap()
        });
        (call, rules.into_iter().collect())
    };
    let refuse = SeccompAction::Errno(error.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter =
        SeccompFilter::new(calls.iter().map(rule).collect(), SeccompAction::Allow, refuse, architecture);
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    // It holds for this thread and for whatever it starts.
    let start = || {
        seccompiler::apply_filter(&program).unwrap();
        Server::serve(scratch, &[])
    };
    thread::scope(|scope| scope.spawn(start).join().unwrap())
}

pub(crate) const URING_SETUP: Refused = (libc::SYS_io_uring_setup, None);
pub(crate) const URING_ENTER: Refused = (libc::SYS_io_uring_enter, None);
