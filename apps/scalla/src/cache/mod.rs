//! `scalla cache`: the disk cache of remote files.

mod evict;
mod pin;
mod running;
mod simulate;
mod status;
mod verify;

use clap::Subcommand;
use std::process::ExitCode;

/// Inspect the disk cache of a proxy, remove files from it, keep others, and simulate caches.
#[derive(clap::Args, Debug)]
pub(crate) struct CacheCommand {
    #[command(subcommand)]
    command: CacheSubcommand,
}

#[derive(Subcommand, Debug)]
enum CacheSubcommand {
    Status(status::CacheStatusCommand),
    Evict(evict::EvictCommand),
    Pin(pin::PinCommand),
    Unpin(pin::UnpinCommand),
    Verify(verify::VerifyCommand),
    Simulate(simulate::SimulateCommand),
}

impl CacheCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            CacheSubcommand::Status(command) => command.run(),
            CacheSubcommand::Evict(command) => command.run(),
            CacheSubcommand::Pin(command) => command.run(),
            CacheSubcommand::Unpin(command) => command.run(),
            CacheSubcommand::Verify(command) => command.run(),
            CacheSubcommand::Simulate(command) => command.run(),
        }
    }
}
