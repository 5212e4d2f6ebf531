//! The commands for files and directories at servers: `scalla ls`, `stat`, `cat` and so on.
//!
//! Each command is a struct of arguments with `run(self, &Context, &Console)`. [`FileCommand`] is
//! the enum of all commands. `scalla` runs one from its command line with [`FileCommand::start`]. A
//! caller with its own runtime, client and current directory uses [`FileCommand::run`]. Arguments
//! that are URLs have [`clap::ValueHint::Url`].
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`FileCommand`]: all commands |
//! | `context` | [`Context`]: the client, and the resolution of URLs and paths |
//! | `console` | [`Console`]: output, failures, the exit status |
//! | `format` | formatting of sizes, times, names and status |
//! | `columns` | names in columns, aligned tables |
//! | `removal_summary` | the number of entries and bytes that a removal concerns |
//! | `walk` | [`walk::DirectoryWalk`]: ordered traversal, with several requests in flight |
//! | `whoami` | `scalla auth whoami` |
//! | `ls`, `stat`, … | the commands, related ones in one file |

mod archive;
mod cat;
mod checksum;
mod chmod;
mod columns;
mod console;
mod context;
mod du;
mod find;
pub(crate) mod format;
mod head_tail;
mod locate;
mod ls;
mod mkdir_rmdir;
mod mv_truncate;
mod prepare;
mod query;
mod removal_summary;
mod rm;
mod space;
mod stat;
mod tree;
mod walk;
mod whoami;
mod xattr;

pub(crate) use console::Console;
pub(crate) use context::{Context, Quoted};
pub(crate) use whoami::WhoamiCommand;

use std::process::ExitCode;

use client::copy::Watch;

use crate::copy::interrupts;
use crate::environment;
use crate::exit_status::INTERRUPTED;
use crate::named_servers;
use crate::usage_error::UsageError;
use crate::wait_display;

/// A command on files.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum FileCommand {
    Ls(ls::LsCommand),
    Stat(stat::StatCommand),
    Cat(cat::CatCommand),
    Head(head_tail::HeadCommand),
    Tail(head_tail::TailCommand),
    Mkdir(mkdir_rmdir::MkdirCommand),
    Mv(mv_truncate::MvCommand),
    Rm(rm::RmCommand),
    Rmdir(mkdir_rmdir::RmdirCommand),
    Chmod(chmod::ChmodCommand),
    Truncate(mv_truncate::TruncateCommand),
    Locate(locate::LocateCommand),
    Checksum(checksum::ChecksumCommand),
    Xattr(xattr::XattrCommand),
    Prepare(prepare::PrepareCommand),
    Query(query::QueryCommand),
    Space(space::SpaceCommand),
    Du(du::DuCommand),
    Find(find::FindCommand),
    Tree(tree::TreeCommand),
    /// Belongs to `scalla auth`.
    #[command(skip)]
    Whoami(WhoamiCommand),
}

impl FileCommand {
    /// Runs the command as a program: arguments are URLs, and an interrupt ends it.
    pub(crate) fn start(self) -> anyhow::Result<ExitCode> {
        let watch = Watch::default();
        interrupts::run(&watch, async {
            let base = named_servers::default_server().map_err(UsageError)?;
            let context = Context::new(environment::client("scalla"), base);
            tokio::select! {
                biased;
                () = watch.cancelled() => Ok(ExitCode::from(INTERRUPTED)),
                status = self.run(&context) => Ok(status),
            }
        })
    }

    /// Runs the command and prints its output. Dropping the future cancels it. The status is 0, or
    /// 1 after a failure, or 2 after invalid arguments.
    pub(crate) async fn run(self, context: &Context) -> ExitCode {
        let console = Console::new(self.is_json(), self.is_verbose());
        let show = |wait| console.show_wait(wait);
        let ran =
            wait_display::with_wait_display(&context.client, self.dispatch(context, &console), show).await;
        console.print_suggestions(&context.client).await;
        console.finish(ran)
    }

    async fn dispatch(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        match self {
            Self::Ls(command) => command.run(context, console).await,
            Self::Stat(command) => command.run(context, console).await,
            Self::Cat(command) => command.run(context, console).await,
            Self::Head(command) => command.run(context, console).await,
            Self::Tail(command) => command.run(context, console).await,
            Self::Mkdir(command) => command.run(context, console).await,
            Self::Mv(command) => command.run(context, console).await,
            Self::Rm(command) => command.run(context, console).await,
            Self::Rmdir(command) => command.run(context, console).await,
            Self::Chmod(command) => command.run(context, console).await,
            Self::Truncate(command) => command.run(context, console).await,
            Self::Locate(command) => command.run(context, console).await,
            Self::Checksum(command) => command.run(context, console).await,
            Self::Xattr(command) => command.run(context, console).await,
            Self::Prepare(command) => command.run(context, console).await,
            Self::Query(command) => command.run(context, console).await,
            Self::Space(command) => command.run(context, console).await,
            Self::Du(command) => command.run(context, console).await,
            Self::Find(command) => command.run(context, console).await,
            Self::Tree(command) => command.run(context, console).await,
            Self::Whoami(command) => command.run(context, console).await,
        }
    }

    /// Reports whether errors include the names of their codes.
    const fn is_verbose(&self) -> bool {
        matches!(self, Self::Rm(command) if command.verbose)
    }

    /// Reports whether all output, including failures, is lines of JSON.
    const fn is_json(&self) -> bool {
        match self {
            Self::Ls(command) => command.json,
            Self::Stat(command) => command.json,
            Self::Locate(command) => command.json,
            Self::Checksum(command) => command.json,
            Self::Xattr(command) => command.is_json(),
            Self::Prepare(command) => command.is_json(),
            Self::Query(command) => command.is_json(),
            Self::Space(command) => command.json,
            Self::Du(command) => command.json,
            Self::Find(command) => command.json,
            Self::Tree(command) => command.json,
            Self::Whoami(command) => command.json,
            Self::Cat(_) | Self::Head(_) | Self::Tail(_) | Self::Mkdir(_) | Self::Mv(_) | Self::Rm(_) => {
                false
            }
            Self::Rmdir(_) | Self::Chmod(_) | Self::Truncate(_) => false,
        }
    }
}
