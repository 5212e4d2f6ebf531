//! Configuration to rooms wired together; drain, reload, shutdown.

pub mod admin;
pub mod log;
pub mod process;
