//! `scalla du`.

use client::{RemotePath, Url};
use serde_json::json;

use super::console::Console;
use super::context::Context;
use super::format;
use super::walk::is_dir;
use crate::printer::out;

/// Print the total size of directories.
///
/// The size is the sum of the file sizes. In a cluster, each file counts once.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct DuCommand {
    /// Files and directories to add up; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// Print only the total of each argument.
    #[arg(long, short, conflicts_with = "max_depth")]
    summarize: bool,
    /// Print sizes in units of 1024, such as 1.2K (the default).
    #[arg(long, short = 'h', overrides_with = "bytes")]
    human: bool,
    /// Print sizes in bytes.
    #[arg(long, short = 'B', overrides_with = "human")]
    bytes: bool,
    /// Print directories at most N levels down.
    #[arg(long, short = 'd', value_name = "N")]
    max_depth: Option<usize>,
    /// Print each result as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The running total of a directory.
struct DirectoryTotal {
    path: RemotePath,
    bytes: u64,
    files: u64,
    directories: u64,
}

impl DuCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        for url in context.expand(console, &texts).await? {
            match context.files(&url).stat(&url.path).await {
                Ok(stat) if !stat.is_dir() => {
                    self.print_total(
                        context,
                        console,
                        &url,
                        &DirectoryTotal {
                            path: url.path.clone(),
                            bytes: stat.size,
                            files: 1,
                            directories: 0,
                        },
                    );
                }
                Ok(_) => self.sum_directory(context, console, &url).await?,
                Err(error) => console.fail(&url, &error),
            }
        }
        Ok(())
    }

    /// Reports directories in post-order, because a total is known only after all subdirectories.
    async fn sum_directory(&self, context: &Context, console: &Console, url: &Url) -> anyhow::Result<()> {
        let Some(mut walk) = context.walk(console, url).await else { return Ok(()) };
        let mut open: Vec<DirectoryTotal> = Vec::new();
        let mut seen = 0_u64;
        while let Some(mut directory) = walk.next().await {
            walk.enter_all(&mut directory);
            directory.failed.iter().for_each(|error| console.fail(&directory.url, error));
            self.complete(context, console, url, &mut open, directory.depth);
            let mut sum = DirectoryTotal { path: directory.url.path, bytes: 0, files: 0, directories: 1 };
            for file in directory.entries.iter().filter(|entry| !is_dir(entry)) {
                sum.bytes = sum.bytes.saturating_add(file.size);
                sum.files += 1;
            }
            open.push(sum);
            seen += 1;
            if seen.is_multiple_of(100) {
                console.progress(|| format!("{seen} directories"));
            }
            console.flush_if_due().await?;
        }
        self.complete(context, console, url, &mut open, 0);
        Ok(())
    }

    /// Completes the open directories from a depth on.
    fn complete(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        open: &mut Vec<DirectoryTotal>,
        depth: usize,
    ) {
        while open.len() > depth
            && let Some(sum) = open.pop()
        {
            if let Some(above) = open.last_mut() {
                above.bytes = above.bytes.saturating_add(sum.bytes);
                above.files += sum.files;
                above.directories += sum.directories;
            }
            let most = if self.summarize { 0 } else { self.max_depth.unwrap_or(usize::MAX) };
            if open.len() <= most {
                self.print_total(context, console, &url.at(sum.path.clone()), &sum);
            }
        }
    }

    fn print_total(&self, context: &Context, console: &Console, url: &Url, sum: &DirectoryTotal) {
        let DirectoryTotal { bytes, files, directories, .. } = sum;
        if self.json {
            console.json(json!({
                "url": url.to_string(), "bytes": bytes, "files": files, "directories": directories,
            }));
        } else {
            let mut line = out().text();
            line.add(format::size(*bytes, self.bytes)).literal("\t").add(context.name(url)).literal("\n");
            console.put(&line);
        }
    }
}
