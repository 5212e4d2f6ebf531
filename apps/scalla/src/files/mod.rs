//! The commands for files and folders at servers: `scalla ls`, `stat`, `cat` and so on.
//!
//! Each command is a struct of arguments with `run(self, &Context, &Console)`. [`Files`] is the sum of them: `scalla` runs one from
//! its command line, with [`Files::start`]; whoever has a runtime, a client and a current folder of its own, with [`Files::run`].
//! What is a URL in the arguments has [`clap::ValueHint::Url`].
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | [`Files`]: all commands |
//! | `context` | [`Context`]: the client, and what URLs and paths stand for |
//! | `console` | [`Console`]: output, failures, the exit status |
//! | `text` | sizes, times, names and status as people and programs read them |
//! | `columns` | names in columns, aligned tables |
//! | `extent` | how much a removal is about |
//! | `walk` | [`walk::Walk`]: folders below a folder in order, several on their way at once |
//! | `ls`, `stat`, … | the commands, close ones together |

mod archive;
mod change;
mod checksum;
mod chmod;
mod columns;
mod console;
mod content;
mod context;
mod du;
mod ends;
mod extent;
mod find;
mod locate;
mod ls;
mod make;
mod prepare;
mod query;
mod rm;
mod space;
mod stat;
pub(crate) mod text;
mod tree;
mod walk;
mod xattr;

pub(crate) use console::{Console, UNCERTAIN};
pub(crate) use context::{Context, Quoted, Usage};

use std::process::ExitCode;

use client::copy::Watch;

use crate::copy::work;
use crate::environment;

/// A command.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Files {
    Ls(ls::Ls),
    Stat(stat::Stat),
    Cat(content::Cat),
    Head(ends::Head),
    Tail(ends::Tail),
    Mkdir(make::Mkdir),
    Mv(change::Mv),
    Rm(rm::Rm),
    Rmdir(make::Rmdir),
    Chmod(chmod::Chmod),
    Truncate(change::Truncate),
    Locate(locate::Locate),
    Checksum(checksum::Checksum),
    Xattr(xattr::Xattr),
    Prepare(prepare::Prepare),
    Query(query::Query),
    Space(space::Space),
    Du(du::Du),
    Find(find::Find),
    Tree(tree::Tree),
}

impl Files {
    /// Runs it as a program of its own: arguments are URLs, an interrupt ends it.
    pub(crate) fn start(self) -> anyhow::Result<ExitCode> {
        let watch = Watch::default();
        work::run(&watch, async {
            let base = crate::servers::default().map_err(Usage)?;
            let context = Context::new(environment::client("scalla"), base);
            tokio::select! {
                biased;
                () = watch.cancelled() => Ok(ExitCode::from(work::INTERRUPTED)),
                status = self.run(&context) => Ok(status),
            }
        })
    }

    /// Runs it, and tells what it has to tell. Dropping the future stops it. The status is 0, 1 when something failed, or 2
    /// when the arguments make no sense.
    pub(crate) async fn run(self, context: &Context) -> ExitCode {
        let console = Console::new(self.is_json(), self.is_verbose());
        let show = |wait| console.show_wait(wait);
        let ran = crate::waiting::shown(&context.client, self.dispatch(context, &console), show).await;
        console.hint(&context.client).await;
        console.end(ran)
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
        }
    }

    /// Whether its errors have the names of their codes.
    const fn is_verbose(&self) -> bool {
        matches!(self, Self::Rm(command) if command.verbose)
    }

    /// Whether it tells everything, failures too, as lines of JSON.
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
            Self::Cat(_) | Self::Head(_) | Self::Tail(_) | Self::Mkdir(_) | Self::Mv(_) | Self::Rm(_) => {
                false
            }
            Self::Rmdir(_) | Self::Chmod(_) | Self::Truncate(_) => false,
        }
    }
}
