//! Linux error numbers that this crate produces itself, and errors made from them.
//!
//! They are defined here because this crate makes no system calls and so needs no crate that binds
//! them.

use base::{Error, LogicalPath};
use std::io;

pub(crate) const NOT_FOUND: i32 = 2;
pub(crate) const INPUT_OUTPUT: i32 = 5;
pub(crate) const NO_DEVICE: i32 = 6;
pub(crate) const BAD_DESCRIPTOR: i32 = 9;
pub(crate) const TRY_AGAIN: i32 = 11;
pub(crate) const ACCESS: i32 = 13;
pub(crate) const NOT_A_BLOCK_DEVICE: i32 = 15;
pub(crate) const BUSY: i32 = 16;
pub(crate) const EXISTS: i32 = 17;
pub(crate) const OTHER_DEVICE: i32 = 18;
pub(crate) const NOT_A_DIRECTORY: i32 = 20;
pub(crate) const IS_A_DIRECTORY: i32 = 21;
pub(crate) const INVALID: i32 = 22;
pub(crate) const NOT_A_TERMINAL: i32 = 25;
pub(crate) const TEXT_BUSY: i32 = 26;
pub(crate) const READ_ONLY: i32 = 30;
pub(crate) const NAME_TOO_LONG: i32 = 36;
pub(crate) const TOO_MANY_LINKS: i32 = 40;
pub(crate) const NO_DATA: i32 = 61;
pub(crate) const TOO_MANY: i32 = 87;
pub(crate) const UNSUPPORTED: i32 = 95;
pub(crate) const OVER_QUOTA: i32 = 122;
pub(crate) const CANCELLED: i32 = 125;

/// Returns an error as the operating system would return it.
pub(crate) fn os(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Returns the error `Unable to VERB PATH; REASON` for an error number.
pub(crate) fn unable(verb: &str, path: &LogicalPath, number: i32) -> Error {
    Error::unable(verb, path, os(number))
}
