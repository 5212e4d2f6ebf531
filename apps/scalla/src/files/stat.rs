//! `scalla stat`.

use client::{Error, FileChecksum, StatInfo, Url, join_bounded};
use serde_json::json;

use super::console::Console;
use super::context::Context;
use super::format;
use crate::xrootd_compat;

/// Print all status information of files and directories.
#[derive(clap::Args, Debug)]
pub(crate) struct StatCommand {
    /// Files and directories; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// Print the checksum too, of this type or of the server's first type. The server computes it
    /// if it is not stored.
    #[arg(long, value_name = "TYPE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    checksum: Option<String>,
    /// Print each result as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl StatCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let urls = context.expand(console, &self.urls).await?;
        let look = |url: Url| {
            let (files, kind) = (context.files(&url), self.checksum.clone());
            async move {
                let stat = files.stat(&url.path).await;
                let sum = match (&stat, kind) {
                    (Ok(stat), Some(kind)) if !stat.is_dir() => Some(
                        files.checksum(&url.path, Some(kind.as_str()).filter(|kind| !kind.is_empty())).await,
                    ),
                    _ => None,
                };
                (url, stat, sum)
            }
        };
        let mut has_gap = false;
        for (url, stat, sum) in join_bounded(urls, look).await {
            let stat = match stat {
                Ok(stat) => stat,
                Err(error) => {
                    console.fail(&url, &error);
                    continue;
                }
            };
            self.print_status(context, console, &url, &stat, sum, has_gap);
            has_gap = true;
            console.flush_if_due().await?;
        }
        Ok(())
    }

    fn print_status(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        stat: &StatInfo,
        sum: Option<Result<FileChecksum, Error>>,
        has_gap: bool,
    ) {
        let sum = sum.and_then(|sum| sum.map_err(|error| console.fail(url, &error)).ok());
        if self.json {
            let mut facts = format::facts(&url.path, Some(url), Some(stat));
            facts.insert("id".to_owned(), stat.id.into());
            if let Some(FileChecksum { kind, value }) = sum {
                facts.insert("checksum".to_owned(), json!({ "type": kind, "value": value }));
            }
            console.json(facts.into());
            return;
        }
        console.heading(has_gap, context.name(url));
        let line = |name: &str, value: &str| console.line(format_args!("  {name:<9} {value}"));
        line("type", format::kind(stat));
        line("size", &format!("{} bytes ({})", stat.size, format::human(stat.size)));
        if let Some(more) = &stat.more {
            line("mode", &format!("{:04o} ({})", more.mode & 0o7777, xrootd_compat::format::mode(stat)));
            line("owner", &format!("{}:{}", more.owner, more.group));
        }
        line("modified", &format::exact_time(stat.mtime));
        if let Some(more) = &stat.more {
            line("changed", &format::exact_time(more.ctime));
            line("accessed", &format::exact_time(more.atime));
        }
        line("state", &format::states(stat.flags).join(", "));
        line("id", &stat.id.to_string());
        if let Some(FileChecksum { kind, value }) = sum {
            line("checksum", &format!("{kind} {value}"));
        }
    }
}
