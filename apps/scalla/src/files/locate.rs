//! `scalla locate`.

use client::xroot::flags::LocateOptions;
use client::{Error, ReplicaLocation, Url, join_bounded};
use serde_json::json;

use super::columns::{self, Align};
use super::console::Console;
use super::context::Context;

/// Print the servers that have files.
///
/// Each location is printed as a URL at the server itself.
#[derive(clap::Args, Debug)]
pub(crate) struct LocateCommand {
    /// Files to locate; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    /// List all servers that export the path, with and without the file.
    #[arg(long, short)]
    all: bool,
    /// Make managers discard their cached locations and query their servers again.
    #[arg(long, short)]
    refresh: bool,
    /// List managers instead of querying them.
    #[arg(long, short, conflicts_with = "all")]
    near: bool,
    /// Print each location as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// A location, and whether the file is there if that was checked.
type Found = (Url, ReplicaLocation, Option<bool>);

impl LocateCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let urls = context.expand(console, &self.urls).await?;
        let several = urls.len() > 1;
        for (index, url) in urls.iter().enumerate() {
            match self.locations(context, url).await {
                Ok(found) => {
                    if several && !self.json {
                        console.heading(index > 0, format_args!("{}:", context.name(url)));
                    }
                    self.show(console, url, &found);
                }
                Err(error) => console.fail(url, &error),
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    async fn locations(&self, context: &Context, url: &Url) -> Result<Vec<Found>, Error> {
        let files = context.files(url);
        let mut options = LocateOptions::PREFNAME;
        if self.refresh {
            options |= LocateOptions::REFRESH;
        }
        let locations = match (self.all, self.near) {
            (true, _) => files.locate_deep(&format!("*{}", url.path), options).await?,
            (_, true) => files.locate(&url.path, options).await?,
            _ => files.locate_deep(&url.path, options).await?,
        };
        let look = |location: ReplicaLocation| {
            let (server, path, all) = (files.beside(&location), url.path.clone(), self.all);
            async move {
                let is_present = if all { Some(server.find(&path).await?.is_some()) } else { None };
                Ok((server.url().at(path), location, is_present))
            }
        };
        join_bounded(locations, look).await.into_iter().collect()
    }

    fn show(&self, console: &Console, url: &Url, found: &[Found]) {
        let mut rows = Vec::new();
        for (place, location, is_present) in found {
            let role = if location.is_manager { "manager" } else { "server" };
            if self.json {
                console.json(json!({
                    "url": url.to_string(), "place": place.to_string(), "server": place.authority(), "role": role,
                    "writable": location.writable, "pending": location.pending, "present": is_present.unwrap_or(true),
                }));
                continue;
            }
            let access = if location.writable { "read-write" } else { "read-only" };
            let state = match (location.pending, is_present) {
                (true, _) => "being staged",
                (_, Some(false)) => "not there",
                _ => "",
            };
            let cells = [place.to_string(), role.to_owned(), access.to_owned(), state.to_owned()];
            rows.push(cells.into_iter().filter(|cell| !cell.is_empty()).collect());
        }
        console.put(&columns::table(&[Align::Left; 4], &rows));
    }
}
