//! A server for which the kernel rejects some system calls, like old kernels and some containers.

use super::{Scratch, Server};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::thread;

/// A system call to reject. If it is rejected only for some arguments, the index of the argument
/// and its minimum value.
pub(crate) type Refused = (libc::c_long, Option<(u8, u64)>);

/// Starts the server with a filter that rejects system calls with this error.
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
    // The filter applies to this thread and to all processes that it starts.
    let start = || {
        seccompiler::apply_filter(&program).unwrap();
        Server::serve(scratch, &[])
    };
    thread::scope(|scope| scope.spawn(start).join().unwrap())
}

pub(crate) const URING_SETUP: Refused = (libc::SYS_io_uring_setup, None);
pub(crate) const URING_ENTER: Refused = (libc::SYS_io_uring_enter, None);
