//! `scalla space`.

use client::{ClusterServers, Error, FileSystem, SpaceInfo, Url, join_bounded};
use serde_json::json;

use super::columns::{self, Align};
use super::console::Console;
use super::context::Context;
use super::format;

/// Print the total, used and free space.
///
/// In a cluster, print it for each server and in total.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct SpaceCommand {
    /// Server or path; ?oss.cgroup=NAME selects a space by name.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// Print sizes in units of 1024, such as 1.2K (the default).
    #[arg(long, short = 'h', overrides_with = "bytes")]
    human: bool,
    /// Print sizes in bytes.
    #[arg(long, short = 'B', overrides_with = "human")]
    bytes: bool,
    /// Print each server as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl SpaceCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        let mut rows = Vec::new();
        let mut sum =
            SpaceInfo { name: String::new(), total: 0, free: 0, largest_free: 0, used: 0, quota: None };
        for url in context.expand(console, &texts).await? {
            let servers = match context.files(&url).cluster_servers(&url.path).await {
                Ok(ClusterServers { servers, failed }) => {
                    failed.iter().for_each(|error| console.fail(&url, error));
                    servers
                }
                Err(error) => {
                    console.fail(&url, &error);
                    continue;
                }
            };
            for (server, space) in self.query_space(servers, &url).await {
                match space {
                    Ok(space) => {
                        sum.total += space.total;
                        sum.free += space.free;
                        sum.used += space.used;
                        sum.largest_free = sum.largest_free.max(space.largest_free);
                        self.print_space(console, &mut rows, &server.url().authority(), &space);
                    }
                    Err(error) => console.fail(&url, &error),
                }
            }
        }
        if self.json {
            return Ok(());
        }
        if rows.len() > 1 {
            self.print_space(console, &mut rows, "all", &sum);
        }
        if !rows.is_empty() {
            let titles = ["Server", "Space", "Size", "Used", "Free", "Use%", "Largest"];
            rows.insert(0, titles.map(str::to_owned).to_vec());
        }
        use Align::{Left, Right};
        console.put(&columns::table(&[Left, Left, Right, Right, Right, Right, Right], &rows));
        Ok(())
    }

    async fn query_space(
        &self,
        servers: Vec<FileSystem>,
        url: &Url,
    ) -> Vec<(FileSystem, Result<SpaceInfo, Error>)> {
        let ask = |server: FileSystem| {
            let path = url.path.clone();
            async move {
                let space = server.space(&path).await;
                (server, space)
            }
        };
        join_bounded(servers, ask).await
    }

    fn print_space(&self, console: &Console, rows: &mut Vec<Vec<String>>, server: &str, space: &SpaceInfo) {
        let SpaceInfo { name, total, free, largest_free, used, quota } = space;
        if self.json {
            console.json(json!({
                "server": server, "space": name, "total": total, "used": used, "free": free,
                "largest_free": largest_free, "quota": quota,
            }));
            return;
        }
        // Space that is neither used nor free is reserved. Like `df`, the percentage refers to the
        // space available to users.
        let percent = (u128::from(*used) * 100).checked_div(u128::from(used + free));
        let size = |bytes: u64| format::size(bytes, self.bytes);
        rows.push(vec![
            server.to_owned(),
            if name.is_empty() { "-".to_owned() } else { name.clone() },
            size(*total),
            size(*used),
            size(*free),
            percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%")),
            size(*largest_free),
        ]);
    }
}
