//! `scalla tree`.

use client::Url;

use super::console::Console;
use super::context::Context;
use super::format;
use super::walk::{DirectoryWalk, Items, WalkItem, is_dir};
use crate::printer::out;

/// Draw directories with everything below them as trees.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct TreeCommand {
    /// Directories to draw; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// Descend at most N levels.
    #[arg(long = "level", short = 'L', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    level: Option<u32>,
    /// Include names that begin with a dot.
    #[arg(long, short)]
    all: bool,
    /// Draw directories only.
    #[arg(long, short)]
    directories: bool,
    /// Print sizes in units of 1024, such as 1.2K.
    #[arg(long, short = 'h')]
    human: bool,
    /// Print each entry as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// A directory whose entries are being drawn.
struct DrawnDirectory {
    /// The URL of the directory.
    url: Url,
    entries: Items,
    /// The indices of the entries to be drawn, and whether each is a directory to be entered.
    numbers: std::vec::IntoIter<(u32, bool)>,
    /// The prefix of their lines.
    prefix: String,
}

/// Numbers of drawn entries.
#[derive(Default)]
struct EntryCounts {
    directories: u64,
    files: u64,
}

impl TreeCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        let mut count = EntryCounts::default();
        for url in context.expand(console, &texts).await? {
            self.draw(context, console, &url, &mut count).await?;
        }
        if !self.json {
            let word = |number: u64, one: &str, more: &str| {
                format!("{number} {}", if number == 1 { one } else { more })
            };
            let directories = word(count.directories, "directory", "directories");
            let files = if self.directories {
                String::new()
            } else {
                format!(", {}", word(count.files, "file", "files"))
            };
            console.lines(format_args!("\n{directories}{files}\n"));
        }
        Ok(())
    }

    async fn draw(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        count: &mut EntryCounts,
    ) -> anyhow::Result<()> {
        let Some(mut walk) = context.walk(console, url).await else { return Ok(()) };
        if !self.json {
            console.line(context.name(url));
        }
        let mut levels: Vec<DrawnDirectory> = Vec::new();
        if let Some(level) = self.next(console, &mut walk, String::new(), 0).await {
            levels.push(level);
        }
        while let Some(level) = levels.last_mut() {
            let Some((number, is_entered)) = level.numbers.next() else {
                levels.pop();
                continue;
            };
            let Some(entry) = level.entries.get(number) else { continue };
            let more = !level.numbers.as_slice().is_empty();
            let (prefix, url) = (level.prefix.clone(), level.url.clone());
            self.put(console, &url, &prefix, more, &entry);
            let deep = levels.len();
            if is_dir(&entry) {
                count.directories += 1;
            } else {
                count.files += 1;
            }
            if is_entered {
                let prefix = format!("{prefix}{}", if more { "│   " } else { "    " });
                levels.extend(self.next(console, &mut walk, prefix, deep).await);
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    /// Reports whether directories at a depth are drawn with their entries.
    fn enters(&self, depth: usize) -> bool {
        self.level.is_none_or(|level| depth < level as usize)
    }

    /// Returns the next directory of the walk, which is the last one drawn.
    async fn next(
        &self,
        console: &Console,
        walk: &mut DirectoryWalk,
        prefix: String,
        depth: usize,
    ) -> Option<DrawnDirectory> {
        let mut directory = walk.next().await?;
        let shows = |entry: &WalkItem| {
            (self.all || !entry.name.starts_with('.')) && (!self.directories || is_dir(entry))
        };
        let shown = directory.entries.iter().filter(shows);
        let mut numbers: Vec<(u32, bool)> = shown.map(|entry| (entry.number(), is_dir(&entry))).collect();
        let directories = numbers.iter().filter(|(_, is_dir)| *is_dir);
        let directories: Vec<u32> = directories.map(|(number, _)| *number).collect();
        // Directories that lead back to an ancestor are drawn, but not entered.
        let entered =
            if self.enters(depth + 1) { walk.enter(&mut directory, &directories) } else { Vec::new() };
        directory.failed.iter().for_each(|error| console.fail(&directory.url, error));
        let directories = numbers.iter_mut().map(|(_, is_dir)| is_dir).filter(|is_dir| **is_dir);
        for (is_entered, entered) in directories.zip(entered.into_iter().chain(std::iter::repeat(false))) {
            *is_entered = entered;
        }
        Some(DrawnDirectory {
            url: directory.url,
            entries: directory.entries,
            numbers: numbers.into_iter(),
            prefix,
        })
    }

    fn put(&self, console: &Console, directory: &Url, prefix: &str, more: bool, entry: &WalkItem) {
        if self.json {
            let url = directory.at(directory.path.join(&entry.name));
            console.json(format::facts(&entry.name, Some(&url), entry.stat.as_ref()).into());
            return;
        }
        let branch = if more { "├── " } else { "└── " };
        let colour = entry.stat.as_ref().filter(|_| console.has_colours()).and_then(format::colour);
        let size = entry.stat.as_ref().filter(|_| self.human);
        let size = size.map_or_else(String::new, |stat| format!("[{:>5}]  ", format::human(stat.size)));
        let mut line = out().text();
        line.add(format_args!("{prefix}{branch}{size}")).add_coloured(&*entry.name, colour).literal("\n");
        console.put(&line);
    }
}
