//! `scalla mv` and `truncate`.

use client::{Error, FileSystem, RemotePath, Url, join_bounded};

use super::console::Console;
use super::context::{Context, is_root};
use super::mkdir_rmdir::{already_exists, combine_results};
use crate::quantity;
use crate::usage_error::UsageError;

/// Rename or move files within a server.
///
/// An existing file with the new name is replaced. Between servers, use scalla cp and scalla rm.
#[derive(clap::Args, Debug)]
pub(crate) struct MvCommand {
    /// Files and directories to move, which may contain wildcards, followed by the target: a new
    /// name, or a directory.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, num_args = 2.., required = true)]
    urls: Vec<String>,
    /// Do not replace existing files.
    #[arg(long, short)]
    no_clobber: bool,
}

impl MvCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let Some((target, sources)) = self.urls.split_last() else { return Ok(()) };
        let target = context.url(target)?;
        for source in sources {
            let source = context.url(source)?;
            if source.authority() != target.authority() {
                let why = format!(
                    "{source} and {target} are on different servers; copy with `scalla cp`, then remove with `scalla rm`"
                );
                return Err(UsageError(why).into());
            }
            if is_root(&source.path) {
                return Err(UsageError(format!("{source}: the root has no other name")).into());
            }
        }
        let urls = context.expand(console, sources).await?;
        let files = context.files(&target);
        let into = match files.is_dir(&target.path).await {
            Ok(into) => into,
            Err(error) => {
                console.fail(&target, &error);
                return Ok(());
            }
        };
        if !into && (urls.len() > 1 || target.path.ends_with('/')) {
            return Err(UsageError(format!("{target} is no directory that files could go to")).into());
        }
        for url in urls {
            let new = match url.path.name() {
                Some(name) if into => target.path.join(&name),
                None if into => {
                    return Err(UsageError(format!("{url} names nothing that could be moved")).into());
                }
                _ => target.path.clone(),
            };
            let done = async {
                if self.no_clobber && files.find(&new).await?.is_some() {
                    return Err(already_exists("mv", &target.at(new)));
                }
                rename(&context.files(&url), &url.path, &new).await
            };
            if let Err(error) = done.await {
                console.fail(&url, &error);
            }
        }
        Ok(())
    }
}

/// Renames at all servers that have the path.
async fn rename(files: &FileSystem, old: &RemotePath, new: &RemotePath) -> Result<(), Error> {
    at_holders(files, old, |server, old| {
        let new = new.clone();
        async move { server.mv(&old, &new).await }
    })
    .await
}

/// Runs an operation on a path at all servers that have it.
pub(super) async fn at_holders<F>(
    files: &FileSystem,
    path: &RemotePath,
    work: impl Fn(FileSystem, RemotePath) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let holders = files.holders(path).await?;
    combine_results(join_bounded(holders, |server| work(server, path.clone())).await)
}

/// Set the size of files.
///
/// Data beyond the new size is lost. Added bytes read as zeros.
#[derive(clap::Args, Debug)]
pub(crate) struct TruncateCommand {
    /// Files to change; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// New size in bytes; accepts the suffixes k, M, G and T.
    #[arg(long, short, value_name = "SIZE", value_parser = quantity::bytes)]
    size: u64,
}

impl TruncateCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let size = self.size;
        let cut = |url: Url| {
            let files = context.files(&url);
            async move {
                let cut =
                    |server: FileSystem, path: RemotePath| async move { server.truncate(&path, size).await };
                let done = at_holders(&files, &url.path, cut).await;
                (url, done)
            }
        };
        let urls = context.expand(console, &self.urls).await?;
        for (url, done) in join_bounded(urls, cut).await {
            if let Err(error) = done {
                console.fail(&url, &error);
            }
        }
        Ok(())
    }
}
