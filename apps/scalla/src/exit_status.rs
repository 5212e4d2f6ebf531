//! Exit statuses that several commands share.

/// Exit status after a failure.
pub(crate) const FAILED: u8 = 1;
/// Exit status after invalid arguments, as of the parser of the command line.
pub(crate) const USAGE: u8 = 2;
/// Exit status when it is unknown whether an operation was done because its reply was lost.
pub(crate) const UNCERTAIN: u8 = 3;
/// Exit status that shells expect of an interrupted program.
pub(crate) const INTERRUPTED: u8 = 130;
