//! `scalla prepare`.

use std::time::Duration;

use client::xroot::flags::PrepareOptions;
use client::{Error, Url, join_bounded};
use serde_json::json;
use tokio::time::Instant;

use super::console::Console;
use super::context::Context;
use crate::usage_error::UsageError;

/// Interval between two checks of files that are being staged.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The highest priority.
const PRIORITY_MAX: i64 = 3;

/// Stage files to disk before they are needed, or release them.
#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct PrepareCommand {
    #[command(subcommand)]
    task: PrepareTask,
}

#[derive(clap::Subcommand, Debug)]
enum PrepareTask {
    /// Stage files to disk, and print the id of the request.
    Stage(StageOptions),
    /// Report that files are no longer needed on disk.
    Evict {
        /// Files; may contain wildcards.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
        urls: Vec<String>,
    },
    /// Cancel a request.
    Cancel {
        /// The server that accepted the request.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
        url: String,
        /// Id of the request.
        id: String,
    },
    /// Print the status of a request as the server reports it.
    Status {
        /// The server that accepted the request, or a file of the request.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
        url: String,
        /// Id of the request.
        id: String,
        /// Further files of the request.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
        urls: Vec<String>,
    },
}

/// The arguments of `stage`.
#[derive(clap::Args, Debug)]
struct StageOptions {
    /// Files; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// Priority, from 0 (at any time) to 3 (immediately).
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=PRIORITY_MAX))]
    priority: u8,
    /// Prepare the files for writing.
    #[arg(long, short)]
    write: bool,
    /// Stage all files to the same place, if possible.
    #[arg(long)]
    together: bool,
    /// Set the access time of the files to the current time.
    #[arg(long)]
    fresh: bool,
    /// Wait until all files are on disk.
    #[arg(long)]
    wait: bool,
    /// Wait at most this number of seconds.
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
    /// Print each request as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl PrepareCommand {
    pub(super) const fn is_json(&self) -> bool {
        matches!(&self.task, PrepareTask::Stage(stage) if stage.json)
    }

    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        match &self.task {
            PrepareTask::Stage(stage) => stage.run(context, console).await,
            PrepareTask::Evict { urls } => {
                for some in by_server(context.expand(console, urls).await?) {
                    let (Some(first), paths) = (some.first(), paths(&some)) else { continue };
                    let checked = one_line(&some).map(|()| context.files(first));
                    if let Err(error) = checked?.evict(&paths).await {
                        console.fail(first, &error);
                    }
                }
                Ok(())
            }
            PrepareTask::Cancel { url, id } => {
                let url = context.url(url)?;
                if let Err(error) = context.files(&url).cancel(id).await {
                    console.fail(&url, &error);
                }
                Ok(())
            }
            PrepareTask::Status { url, id, urls } => {
                let url = context.url(url)?;
                let mut all: Vec<Url> = (url.path != "/").then(|| url.clone()).into_iter().collect();
                for more in urls {
                    all.push(context.url(more)?);
                }
                one_line(&all)?;
                match context.files(&url).prepare_status(id, &paths(&all)).await {
                    Ok(answer) => console.lines(format_args!("{}\n", answer.trim_end())),
                    Err(error) => console.fail(&url, &error),
                }
                Ok(())
            }
        }
    }
}

impl StageOptions {
    async fn run(&self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let urls = context.expand(console, &self.urls).await?;
        one_line(&urls)?;
        let mut options = PrepareOptions::STAGE;
        let flags = [
            (self.write, PrepareOptions::WMODE),
            (self.together, PrepareOptions::COLOC),
            (self.fresh, PrepareOptions::FRESH),
        ];
        for (_, flag) in flags.into_iter().filter(|(wanted, _)| *wanted) {
            options |= flag;
        }
        let mut taken = Vec::new();
        for some in by_server(urls) {
            let Some(first) = some.first().cloned() else { continue };
            match context.files(&first).prepare(&paths(&some), options, self.priority).await {
                Ok(id) if self.json => {
                    console.json(json!({ "server": first.authority(), "id": id, "files": some.len() }));
                }
                Ok(id) => console.line(id),
                Err(error) => {
                    console.fail(&first, &error);
                    continue;
                }
            }
            taken.extend(some);
        }
        if self.wait { self.wait(context, console, taken).await } else { Ok(()) }
    }

    /// Polls until no file remains to be staged.
    async fn wait(&self, context: &Context, console: &Console, mut left: Vec<Url>) -> anyhow::Result<()> {
        let until = self.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let all = left.len();
        loop {
            let look = |url: Url| {
                let files = context.files(&url);
                async move {
                    let offline = files.stat(&url.path).await.map(|stat| stat.is_offline());
                    (url, offline)
                }
            };
            let looked: Vec<(Url, Result<bool, Error>)> = join_bounded(left, look).await;
            left = Vec::new();
            for (url, offline) in looked {
                match offline {
                    Ok(false) => {}
                    Ok(true) => left.push(url),
                    Err(error) => console.fail(&url, &error),
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                for url in &left {
                    let text = format!("{url} is still not on disk; the request goes on");
                    console.fail_with(&[("url", url.to_string().into())], &text);
                }
                return Ok(());
            }
            console.flush().await?;
            console.progress(|| format!("{} of {all} on disk", all - left.len()));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Groups URLs by server, in their order.
fn by_server(urls: Vec<Url>) -> Vec<Vec<Url>> {
    let mut groups: Vec<Vec<Url>> = Vec::new();
    for url in urls {
        let same =
            |group: &&mut Vec<Url>| group.first().is_some_and(|first| first.authority() == url.authority());
        match groups.iter_mut().find(same) {
            Some(group) => group.push(url),
            None => groups.push(vec![url]),
        }
    }
    groups
}

fn paths(urls: &[Url]) -> Vec<&str> {
    urls.iter().map(|url| url.path.as_str()).collect()
}

/// Rejects line ends, because the protocol separates paths by line ends here.
fn one_line(urls: &[Url]) -> Result<(), UsageError> {
    match urls.iter().find(|url| url.path.contains('\n')) {
        Some(url) => Err(UsageError(format!("{:?}: a path with a line end cannot be prepared", url.path))),
        None => Ok(()),
    }
}
