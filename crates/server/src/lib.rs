//! Configuration to rooms wired together; drain, reload, shutdown.
