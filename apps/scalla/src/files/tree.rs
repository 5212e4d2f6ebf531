//! `scalla tree`.

use client::Url;

use super::console::Console;
use super::context::Context;
use super::text;
use super::walk::{Item, Walk, is_dir};
use crate::printer::out;

/// Draw directories with what is below them.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Tree {
    /// What to draw; may have wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// No further down than that.
    #[arg(long = "level", short = 'L', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    level: Option<u32>,
    /// Also names that begin with a dot.
    #[arg(long, short)]
    all: bool,
    /// Directories alone.
    #[arg(long, short)]
    directories: bool,
    /// With sizes, as people read them.
    #[arg(long, short = 'h')]
    human: bool,
    /// Tell each entry as a line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// A folder whose entries are being drawn.
struct Level {
    /// Where it is.
    url: Url,
    entries: std::vec::IntoIter<(Item, bool)>,
    /// What stands in front of them.
    prefix: String,
}

/// How many of each were drawn.
#[derive(Default)]
struct Count {
    folders: u64,
    files: u64,
}

impl Tree {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        let mut count = Count::default();
        for url in context.expand(console, &texts).await? {
            self.draw(context, console, &url, &mut count).await?;
        }
        if !self.json {
            let word = |number: u64, one: &str, more: &str| {
                format!("{number} {}", if number == 1 { one } else { more })
            };
            let folders = word(count.folders, "directory", "directories");
            let files = if self.directories {
                String::new()
            } else {
                format!(", {}", word(count.files, "file", "files"))
            };
            console.lines(format_args!("\n{folders}{files}\n"));
        }
        Ok(())
    }

    async fn draw(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        count: &mut Count,
    ) -> anyhow::Result<()> {
        let Some(mut walk) = context.walk(console, url).await else { return Ok(()) };
        if !self.json {
            console.line(context.name(url));
        }
        let mut levels: Vec<Level> = Vec::new();
        if let Some(level) = self.next(console, &mut walk, String::new(), 0).await {
            levels.push(level);
        }
        while let Some(level) = levels.last_mut() {
            let Some((entry, is_entered)) = level.entries.next() else {
                levels.pop();
                continue;
            };
            let more = !level.entries.as_slice().is_empty();
            let (prefix, url) = (level.prefix.clone(), level.url.clone());
            self.put(console, &url, &prefix, more, &entry);
            let deep = levels.len();
            if is_dir(&entry) {
                count.folders += 1;
            } else {
                count.files += 1;
            }
            if is_entered {
                let prefix = format!("{prefix}{}", if more { "│   " } else { "    " });
                levels.extend(self.next(console, &mut walk, prefix, deep).await);
            }
            console.pass().await?;
        }
        Ok(())
    }

    /// Whether folders that stand at a depth are drawn with what is in them.
    fn enters(&self, depth: usize) -> bool {
        self.level.is_none_or(|level| depth < level as usize)
    }

    /// The next folder of the walk, which is the one that was drawn last.
    async fn next(&self, console: &Console, walk: &mut Walk, prefix: String, depth: usize) -> Option<Level> {
        let mut folder = walk.next().await?;
        let shows =
            |entry: &Item| (self.all || !entry.name.starts_with('.')) && (!self.directories || is_dir(entry));
        folder.entries.retain(shows);
        // Directories that lead back to where the walk came from are drawn, but not entered.
        let directories: Vec<Item> = folder.entries.iter().filter(|entry| is_dir(entry)).cloned().collect();
        let entered = if self.enters(depth + 1) { walk.enter(&mut folder, &directories) } else { Vec::new() };
        folder.failed.iter().for_each(|error| console.fail(&folder.url, error));
        let mut entered = entered.into_iter();
        let with_entered = |entry: Item| {
            let is_entered = is_dir(&entry) && entered.next().unwrap_or(false);
            (entry, is_entered)
        };
        let entries: Vec<(Item, bool)> = folder.entries.into_iter().map(with_entered).collect();
        Some(Level { url: folder.url, entries: entries.into_iter(), prefix })
    }

    fn put(&self, console: &Console, folder: &Url, prefix: &str, more: bool, entry: &Item) {
        if self.json {
            let url = folder.at(folder.path.join(&entry.name));
            console.json(&text::facts(&entry.name, Some(&url), entry.stat.as_ref()).into());
            return;
        }
        let branch = if more { "├── " } else { "└── " };
        let colour = entry.stat.as_ref().filter(|_| console.has_colours()).and_then(text::colour);
        let size = entry.stat.as_ref().filter(|_| self.human);
        let size = size.map_or_else(String::new, |stat| format!("[{:>5}]  ", text::human(stat.size)));
        let mut line = out().text();
        line.add(format_args!("{prefix}{branch}{size}")).add_coloured(&*entry.name, colour).own("\n");
        console.put(&line);
    }
}
