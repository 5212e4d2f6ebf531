//! `scalla rm`.

use std::io::IsTerminal;

use client::walk::{Tree, TreeRemoval};
use client::{Cause, Error, FileSystem, RemotePath, StatInfo, Url, join_bounded};

use super::console::Console;
use super::context::{Context, is_root};
use super::mkdir_rmdir::combine_results;
use super::removal_summary::RemovalSummary;
use crate::printer::err;
use crate::usage_error::UsageError;

/// Remove files, and directories with everything in them.
///
/// In a cluster, remove them at all servers that have them. At a terminal, --recursive prints the
/// number and size of the entries and asks once for confirmation.
#[derive(clap::Args, Debug)]
pub(crate) struct RmCommand {
    /// Files and directories to remove; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// Remove directories with everything in them.
    #[arg(long, short)]
    recursive: bool,
    /// Do not ask for confirmation; ignore files that do not exist.
    #[arg(long, short, overrides_with = "interactive")]
    force: bool,
    /// Ask before each removal.
    #[arg(long, short, overrides_with = "force")]
    interactive: bool,
    /// Print the entries to remove without removing them.
    #[arg(long, short = 'n', conflicts_with = "interactive")]
    dry_run: bool,
    /// Print each removed entry.
    #[arg(long, short)]
    pub(super) verbose: bool,
}

impl RmCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        if self.interactive && !std::io::stdin().is_terminal() {
            return Err(UsageError("--interactive needs a terminal".to_owned()).into());
        }
        let named: Result<Vec<Url>, UsageError> = self.urls.iter().map(|text| context.url(text)).collect();
        if let Some(root) = named?.iter().find(|url| is_root(&url.path)) {
            let why = "that is everything the server has; name the directories in it";
            return Err(UsageError(format!("{root} is not removed: {why}")).into());
        }
        let mut urls = Vec::new();
        for text in &self.urls {
            // With `--force`, a pattern without a match is not a failure.
            let (url, has_wildcard) = context.pattern(text)?;
            if !has_wildcard {
                urls.push(url);
                continue;
            }
            match context.files(&url).matching(&url.path).await {
                Ok(matches) => {
                    matches.failed.iter().for_each(|error| self.failed(console, &url, error));
                    urls.extend(matches.paths.into_iter().map(|path| url.at(path)));
                }
                Err(error) => self.failed(console, &url, &error),
            }
        }
        if self.dry_run {
            return self.print_plan(context, console, &urls).await;
        }
        if self.recursive {
            if !self.is_confirmed(context, console, &urls).await? {
                return Ok(());
            }
            for url in &urls {
                self.tree(context, console, url).await?;
            }
            return Ok(());
        }
        let mut removed = 0;
        for some in urls.chunks(256) {
            let mut wanted = Vec::new();
            for url in some {
                if !self.interactive || confirm(&format!("remove {url}?")).await? {
                    wanted.push(url.clone());
                }
            }
            self.files(context, console, wanted, false, &mut removed).await?;
        }
        Ok(())
    }

    /// Prints the names that would be removed.
    async fn print_plan(&self, context: &Context, console: &Console, urls: &[Url]) -> anyhow::Result<()> {
        let mut extent = RemovalSummary::default();
        for url in urls {
            if !self.recursive && context.files(url).is_dir(&url.path).await.unwrap_or(false) {
                console.fail(url, &is_directory(context.files(url).url(), &url.path));
                continue;
            }
            let each = |url: &Url| console.line(format_args!("would remove {}", context.name(url)));
            if let Err(error) = extent.add(context, console, url, each).await {
                self.failed(console, url, &error);
            }
            console.flush_if_due().await?;
        }
        console.flush().await?;
        console.warn(format_args!("would remove {extent}"));
        Ok(())
    }

    /// Asks for confirmation of the removal of directories if a terminal is present. Programs are
    /// not asked.
    async fn is_confirmed(&self, context: &Context, console: &Console, urls: &[Url]) -> anyhow::Result<bool> {
        let is_person = std::io::stdin().is_terminal() && err().is_terminal();
        let Some(first) = urls.first().filter(|_| is_person && !self.force && !self.interactive) else {
            return Ok(true);
        };
        let mut extent = RemovalSummary::default();
        for url in urls {
            // A failure to count will be reported during the removal.
            extent.add(context, console, url, |_| ()).await.ok();
        }
        if extent.directories == 0 {
            return Ok(true);
        }
        let more = match urls.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        console.clear();
        confirm(&format!("remove {} and all in it{more} ({extent})?", context.name(first))).await
    }

    fn failed(&self, console: &Console, url: &Url, error: &Error) {
        if !self.force || !error.is_not_found() {
            console.fail(url, error);
        }
    }

    fn report_removed(&self, context: &Context, console: &Console, url: &Url, removed: &mut u64) {
        *removed += 1;
        if self.verbose {
            console.line(format_args!("removed {}", context.name(url)));
        } else if removed.is_multiple_of(100) {
            console.progress(|| format!("{removed} removed"));
        }
    }

    /// Removes files concurrently. `known` states that they are known to be files at servers.
    async fn files(
        &self,
        context: &Context,
        console: &Console,
        urls: Vec<Url>,
        known: bool,
        removed: &mut u64,
    ) -> anyhow::Result<()> {
        let remove = |url: Url| {
            let files = context.files(&url);
            async move {
                let done =
                    if known { files.rm(&url.path).await } else { remove_file(&files, &url.path).await };
                (url, done)
            }
        };
        for (url, done) in join_bounded(urls, remove).await {
            match done {
                Ok(()) => self.report_removed(context, console, &url, removed),
                Err(error) => self.failed(console, &url, &error),
            }
        }
        console.flush_if_due().await
    }

    /// Removes a file, or a directory with all its entries, at each server that has it.
    async fn tree(&self, context: &Context, console: &Console, url: &Url) -> anyhow::Result<()> {
        let servers = match context.files(url).servers(&url.path).await {
            Ok(servers) => servers,
            Err(error) => {
                self.failed(console, url, &error);
                return Ok(());
            }
        };
        let (mut removed, mut missing, mut present) = (0, None, false);
        for server in servers {
            match server.stat(&url.path).await {
                Ok(stat) => {
                    present = true;
                    // The printed names are those at the server, so that each removal can be
                    // located.
                    let url = server.url().at(url.path.clone());
                    self.at_server(context, console, &url, &stat, &mut removed).await?;
                }
                Err(error) if error.is_not_found() => missing = Some(error),
                Err(error) => {
                    present = true;
                    console.fail(url, &error);
                }
            }
        }
        if let Some(error) = missing.filter(|_| !present) {
            self.failed(console, url, &error);
        }
        Ok(())
    }

    async fn at_server(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        stat: &StatInfo,
        removed: &mut u64,
    ) -> anyhow::Result<()> {
        if self.interactive
            && !confirm(&format!("remove {url}{}?", if stat.is_dir() { " and all in it" } else { "" }))
                .await?
        {
            return Ok(());
        }
        if !stat.is_dir() {
            return self.files(context, console, vec![url.clone()], true, removed).await;
        }
        let tree = match Tree::at_server(&context.files(url), url).await {
            Ok(tree) => tree,
            Err(error) => {
                self.failed(console, url, &error);
                return Ok(());
            }
        };
        let mut removal = TreeRemoval::of(tree);
        while let Some(some) = removal.next().await {
            for one in some {
                let Some(url) = one.place.url() else { continue };
                match &one.result {
                    Ok(()) => self.report_removed(context, console, url, removed),
                    Err(error) => self.failed(console, url, error),
                }
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }
}

/// Removes a file. At a manager, removes all copies of it.
async fn remove_file(files: &FileSystem, path: &RemotePath) -> Result<(), Error> {
    // Servers accept a request to remove a file as a request to remove an empty directory.
    if files.stat(path).await?.is_dir() {
        return Err(is_directory(files.url(), path));
    }
    let holders = files.holders(path).await?;
    let remove = |server: FileSystem| {
        let path = path.clone();
        async move { server.rm(&path).await }
    };
    combine_results(join_bounded(holders, remove).await)
}

fn is_directory(url: &Url, path: &RemotePath) -> Error {
    let text = "it is a directory; remove it with --recursive, or scalla rmdir";
    Error::new("rm", url.at(path.clone()), Cause::BadArgument(text.to_owned()))
}

/// Asks a question at the terminal while connections are driven.
async fn confirm(question: &str) -> anyhow::Result<bool> {
    err().prompt(format_args!("{question} [y/N] "));
    let (done, answer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).ok();
        done.send(matches!(line.trim(), "y" | "Y" | "yes")).ok();
    });
    Ok(answer.await.unwrap_or(false))
}
