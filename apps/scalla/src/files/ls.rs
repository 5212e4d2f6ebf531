//! `scalla ls`.

use std::cmp::Reverse;

use client::zip::ArchiveError;
use client::{Cause, Entries, Error, ListWith, RemotePath, StatInfo, Url, join_bounded};

use super::archive;
use super::columns::{self, Align};
use super::console::Console;
use super::context::Context;
use super::format;
use super::walk::{DirectoryWalk, WalkedDirectory, is_dir};
use crate::printer::out;
use crate::xrootd_compat;

/// List directories.
///
/// In a cluster, list the entries of all servers, each name once.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LsCommand {
    #[allow(rustdoc::broken_intra_doc_links, reason = "help text")]
    /// Files and directories to list: root://HOST[:PORT]//PATH, https://HOST[:PORT]/PATH or s3://BUCKET/PATH, which may contain
    /// wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// Print mode, owner, group, size and time.
    #[arg(long, short)]
    long: bool,
    /// Include names that begin with a dot.
    #[arg(long, short)]
    all: bool,
    /// List subdirectories recursively.
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Print one name per line.
    #[arg(short = '1')]
    one: bool,
    /// Print sizes in units of 1024, such as 1.2K (the default).
    #[arg(long, short = 'h', overrides_with = "bytes")]
    human: bool,
    /// Print sizes in bytes.
    #[arg(long, short = 'B', overrides_with = "human")]
    bytes: bool,
    /// Sort by time, newest first.
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,
    /// Sort by size, largest first.
    #[arg(short = 'S')]
    by_size: bool,
    /// Reverse the order.
    #[arg(long, short)]
    reverse: bool,
    /// List directories themselves, not their entries.
    #[arg(long, short)]
    directory: bool,
    /// List the members of ZIP archives.
    #[arg(long, conflicts_with_all = ["recursive", "directory"])]
    zip: bool,
    /// Print each entry as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Maximum number of names arranged in columns.
const COLUMN_NAMES_MAX: usize = 100_000;

/// An entry to show: its displayed name and its URL.
#[derive(Clone)]
struct LsEntry {
    name: String,
    /// `None` if no request can carry its name.
    url: Option<Url>,
    stat: Option<StatInfo>,
}

/// The kind of an argument.
enum LsArgument {
    Entry(LsEntry),
    Directory(Url, Option<Listed>),
}

type Listed = (Entries, Vec<Error>);

/// Entries to show: those named, or the contents of a directory, decoded one by one.
enum LsEntries<'a> {
    Named(Vec<LsEntry>),
    Entries(&'a Url, &'a Entries),
    Directory(&'a WalkedDirectory),
}

impl LsEntries<'_> {
    fn numbers(&self) -> Vec<u32> {
        match self {
            Self::Named(items) => (0..u32::try_from(items.len()).unwrap_or(u32::MAX)).collect(),
            Self::Entries(_, entries) => entries.numbers().collect(),
            Self::Directory(directory) => directory.entries.numbers().collect(),
        }
    }

    fn name(&self, number: u32) -> &[u8] {
        match self {
            Self::Named(items) => items.get(number as usize).map_or(&[], |item| item.name.as_bytes()),
            Self::Entries(_, entries) => entries.name(number),
            Self::Directory(directory) => directory.entries.name(number),
        }
    }

    fn get(&self, number: u32) -> Option<LsEntry> {
        match self {
            Self::Named(items) => items.get(number as usize).cloned(),
            Self::Entries(url, entries) => {
                let entry = entries.get(number)?;
                let url = entry.name.component().ok().map(|name| url.at(url.path.join(name)));
                Some(LsEntry { name: entry.name.to_string(), url, stat: entry.stat })
            }
            Self::Directory(directory) => {
                let entry = directory.entries.get(number)?;
                let url = Some(directory.child(&entry));
                Some(LsEntry { name: entry.name.to_string(), url, stat: entry.stat })
            }
        }
    }
}

impl LsCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        let urls = context.expand(console, &texts).await?;
        let several = texts.len() > 1 || urls.len() > 1;
        if self.zip {
            return self.members(context, console, urls, several).await;
        }
        let (mut items, mut directories) = (Vec::new(), Vec::new());
        for (url, named) in self.classify_arguments(context, console, urls, several).await {
            match named {
                Ok(LsArgument::Entry(item)) => items.push(item),
                Ok(LsArgument::Directory(url, listed)) => directories.push((url, listed)),
                Err(error) => console.fail(&url, &error),
            }
        }
        let mut first = items.is_empty();
        self.show(console, &LsEntries::Named(items)).await?;
        for (url, listed) in directories {
            if self.recursive {
                self.list_recursively(context, console, &url, &mut first).await?;
                continue;
            }
            let listed = match listed {
                Some(listed) => Ok(listed),
                None => self.list(context, console, &url).await,
            };
            match listed {
                Ok((entries, failed)) => {
                    self.head(context, console, several.then_some(&url), &mut first);
                    failed.iter().for_each(|error| console.fail(&url, error));
                    self.show(console, &LsEntries::Entries(&url, &entries)).await?;
                }
                Err(error) => console.fail(&url, &error),
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    /// Determines the kind of each argument. A single argument is listed directly, which saves a
    /// request.
    async fn classify_arguments(
        &self,
        context: &Context,
        console: &Console,
        urls: Vec<Url>,
        several: bool,
    ) -> Vec<(Url, Result<LsArgument, Error>)> {
        if let ([url], false, false, false) = (urls.as_slice(), self.directory, self.recursive, several) {
            let named = match self.list(context, console, url).await {
                Ok(listed) => Ok(LsArgument::Directory(url.clone(), Some(listed))),
                Err(error) if error.code().is_some() || is_unsupported(&error) => {
                    match context.files(url).stat(&url.path).await {
                        Ok(stat) if !stat.is_dir() => Ok(LsArgument::Entry(item(context, url, stat))),
                        Err(of_stat) if of_stat.is_not_found() => Err(of_stat),
                        _ => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            return vec![(url.clone(), named)];
        }
        let stat = |url: Url| {
            let files = context.files(&url);
            async move {
                let stat = files.stat(&url.path).await;
                (url, stat)
            }
        };
        let looked = join_bounded(urls, stat).await.into_iter();
        looked
            .map(|(url, stat)| {
                let named = stat.map(|stat| {
                    if stat.is_dir() && !self.directory {
                        LsArgument::Directory(url.clone(), None)
                    } else {
                        LsArgument::Entry(item(context, &url, stat))
                    }
                });
                (url, named)
            })
            .collect()
    }

    /// Lists the members of archives.
    async fn members(
        &self,
        context: &Context,
        console: &Console,
        urls: Vec<Url>,
        several: bool,
    ) -> anyhow::Result<()> {
        let mut first = true;
        for url in urls {
            match archive::members(context, &url).await {
                Ok(members) => {
                    self.head(context, console, several.then_some(&url), &mut first);
                    let item = |(name, stat): (String, StatInfo)| LsEntry {
                        url: RemotePath::new(format!("{}/{name}", url.path)).ok().map(|path| url.at(path)),
                        name,
                        stat: Some(stat),
                    };
                    let members = LsEntries::Named(members.into_iter().map(item).collect());
                    self.show(console, &members).await?;
                }
                Err(ArchiveError::Read(error)) => console.fail(&url, &error),
                Err(error) => {
                    console.fail_with(&[("url", url.to_string().into())], &format!("{url}: {error}"));
                }
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    async fn list(&self, context: &Context, console: &Console, url: &Url) -> Result<Listed, Error> {
        let stat = self.long || self.by_time || self.by_size || self.json || console.has_colours();
        let with = ListWith { stat, ..ListWith::default() };
        let merged = context.files(url).list_cluster(&url.path, &with).await?;
        Ok((merged.entries, merged.failed))
    }

    async fn list_recursively(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        first: &mut bool,
    ) -> anyhow::Result<()> {
        let Some(mut walk) = context.walk(console, url).await else { return Ok(()) };
        while let Some(mut directory) = walk.next().await {
            self.enter(&mut walk, &mut directory);
            self.head(context, console, Some(&directory.url), first);
            directory.failed.iter().for_each(|error| console.fail(&directory.url, error));
            self.show(console, &LsEntries::Directory(&directory)).await?;
            console.flush_if_due().await?;
        }
        Ok(())
    }

    /// Enters the subdirectories of a directory, in display order.
    fn enter(&self, walk: &mut DirectoryWalk, directory: &mut WalkedDirectory) {
        let mut below = self.order(&LsEntries::Directory(directory));
        below.retain(|number| directory.entries.get(*number).is_some_and(|entry| is_dir(&entry)));
        walk.enter(directory, &below);
    }

    /// Returns the indices of the shown entries, in display order.
    fn order(&self, shown: &LsEntries<'_>) -> Vec<u32> {
        let key = |number: u32| {
            let stat = shown.get(number).and_then(|item| item.stat);
            let time = stat.as_ref().filter(|_| self.by_time).map_or(0, |stat| stat.mtime);
            let size = stat.as_ref().filter(|_| self.by_size).map_or(0, |stat| stat.size);
            Reverse((time, size))
        };
        let mut numbers = shown.numbers();
        // An entry that was named is always shown.
        numbers.retain(|number| {
            let name = shown.name(*number);
            self.all || !name.starts_with(b".") || name.contains(&b'/')
        });
        if self.by_time || self.by_size {
            let mut keyed: Vec<_> = numbers.into_iter().map(|number| (key(number), number)).collect();
            keyed.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| shown.name(a.1).cmp(shown.name(b.1))));
            numbers = keyed.into_iter().map(|(_, number)| number).collect();
        } else {
            numbers.sort_by(|a, b| shown.name(*a).cmp(shown.name(*b)));
        }
        if self.reverse {
            numbers.reverse();
        }
        numbers
    }

    fn head(&self, context: &Context, console: &Console, url: Option<&Url>, first: &mut bool) {
        if let Some(url) = url.filter(|_| !self.json) {
            console.heading(!*first, format_args!("{}:", context.name(url)));
        }
        *first = false;
    }

    async fn show(&self, console: &Console, shown: &LsEntries<'_>) -> anyhow::Result<()> {
        let numbers = self.order(shown);
        let items = || numbers.iter().filter_map(|number| shown.get(*number));
        let colour =
            |item: &LsEntry| item.stat.as_ref().filter(|_| console.has_colours()).and_then(format::colour);
        let in_columns = out().is_terminal() && !self.one && !self.long && numbers.len() <= COLUMN_NAMES_MAX;
        if in_columns && !self.json {
            let items: Vec<LsEntry> = items().collect();
            let names: Vec<_> = items.iter().map(|item| (item.name.as_str(), colour(item))).collect();
            console.put(&columns::lay_out(&names, out().width()));
            return Ok(());
        }
        use Align::{Left, Right};
        let mut table = columns::AlignedTable::new(&[Left, Left, Left, Right, Left, Left]);
        if self.long && !self.json {
            items().for_each(|item| table.measure(&self.row(&item)));
        }
        for item in items() {
            if self.json {
                console.json(format::facts(&item.name, item.url.as_ref(), item.stat.as_ref()).into());
            } else if self.long {
                let mut line = out().text();
                table.add(&mut line, &self.row(&item), colour(&item));
                console.put(&line);
            } else {
                console.put(out().text().add_coloured(&item.name, colour(&item)).literal("\n"));
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    fn row(&self, item: &LsEntry) -> Vec<String> {
        let name = item.name.clone();
        let Some(stat) = &item.stat else {
            return vec!["?".to_owned(); 5].into_iter().chain([name]).collect();
        };
        let more = stat.more.as_ref();
        vec![
            xrootd_compat::format::mode(stat),
            more.map_or("-", |more| &more.owner).to_owned(),
            more.map_or("-", |more| &more.group).to_owned(),
            format::size(stat.size, self.bytes),
            format::time(stat.mtime),
            name,
        ]
    }
}

/// Reports whether the server has no listings.
fn is_unsupported(error: &Error) -> bool {
    matches!(error.cause(), Cause::Unsupported(_))
}

fn item(context: &Context, url: &Url, stat: StatInfo) -> LsEntry {
    LsEntry { name: context.name(url), url: Some(url.clone()), stat: Some(stat) }
}
