//! `scalla ls`.

use std::cmp::Reverse;

use client::zip::ArchiveError;
use client::{Entry, Error, ListWith, RemotePath, StatInfo, Url, together};

use super::archive;
use super::columns::{self, Align};
use super::console::Console;
use super::context::Context;
use super::text;
use super::walk::{self, Folder, Walk, is_dir};
use crate::printer::{Colour, out};
use crate::stock;

/// List directories.
///
/// Of a cluster, what all of its servers have: each name once.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// What to list: root://HOST[:PORT]//PATH, which may have wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// With mode, owner, group, size and time.
    #[arg(long, short)]
    long: bool,
    /// Also names that begin with a dot.
    #[arg(long, short)]
    all: bool,
    /// Directories below too.
    #[arg(long, short = 'R')]
    recursive: bool,
    /// One name a line.
    #[arg(short = '1')]
    one: bool,
    /// Sizes as people read them, which is the default.
    #[arg(long, short = 'h', overrides_with = "bytes")]
    human: bool,
    /// Sizes in bytes.
    #[arg(long, short = 'B', overrides_with = "human")]
    bytes: bool,
    /// The newest first.
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,
    /// The largest first.
    #[arg(short = 'S')]
    by_size: bool,
    /// In the opposite order.
    #[arg(long, short)]
    reverse: bool,
    /// Directories themselves, not what is in them.
    #[arg(long, short)]
    directory: bool,
    /// The members of ZIP archives.
    #[arg(long, conflicts_with_all = ["recursive", "directory"])]
    zip: bool,
    /// Tell each entry as a line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Something to show: the name to show it by, and where it is.
struct Item {
    name: String,
    /// `None` when no request can carry its name.
    url: Option<Url>,
    stat: Option<StatInfo>,
}

/// What an argument is.
enum Named {
    Item(Item),
    Folder(Url, Option<Listed>),
}

type Listed = (Vec<Entry>, Vec<Error>);

impl Ls {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        let urls = context.expand(console, &texts).await?;
        let several = texts.len() > 1 || urls.len() > 1;
        if self.zip {
            return self.members(context, console, urls, several).await;
        }
        let (mut items, mut folders) = (Vec::new(), Vec::new());
        for (url, named) in self.look(context, console, urls, several).await {
            match named {
                Ok(Named::Item(item)) => items.push(item),
                Ok(Named::Folder(url, listed)) => folders.push((url, listed)),
                Err(error) => console.fail(&url, &error),
            }
        }
        let mut first = items.is_empty();
        self.show(console, items);
        for (url, listed) in folders {
            if self.recursive {
                self.everything(context, console, &url, &mut first).await?;
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
                    self.show(console, items_of(&url, entries));
                }
                Err(error) => console.fail(&url, &error),
            }
            console.pass().await?;
        }
        Ok(())
    }

    /// What each argument is. One alone is listed at once, which is one question less.
    async fn look(
        &self,
        context: &Context,
        console: &Console,
        urls: Vec<Url>,
        several: bool,
    ) -> Vec<(Url, Result<Named, Error>)> {
        if let ([url], false, false, false) = (urls.as_slice(), self.directory, self.recursive, several) {
            let named = match self.list(context, console, url).await {
                Ok(listed) => Ok(Named::Folder(url.clone(), Some(listed))),
                Err(error) if error.code().is_some() => match context.files(url).stat(&url.path).await {
                    Ok(stat) if !stat.is_dir() => Ok(Named::Item(item(context, url, stat))),
                    Err(of_stat) if of_stat.is_not_found() => Err(of_stat),
                    _ => Err(error),
                },
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
        let looked = together(urls, stat).await.into_iter();
        looked
            .map(|(url, stat)| {
                let named = stat.map(|stat| {
                    if stat.is_dir() && !self.directory {
                        Named::Folder(url.clone(), None)
                    } else {
                        Named::Item(item(context, &url, stat))
                    }
                });
                (url, named)
            })
            .collect()
    }

    /// What is in archives.
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
                    let item = |(name, stat): (String, StatInfo)| Item {
                        url: RemotePath::new(format!("{}/{name}", url.path)).ok().map(|path| url.at(path)),
                        name,
                        stat: Some(stat),
                    };
                    self.show(console, members.into_iter().map(item).collect());
                }
                Err(ArchiveError::Read(error)) => console.fail(&url, &error),
                Err(error) => {
                    console.fail_with(&[("url", url.to_string().into())], &format!("{url}: {error}"));
                }
            }
            console.pass().await?;
        }
        Ok(())
    }

    async fn list(&self, context: &Context, console: &Console, url: &Url) -> Result<Listed, Error> {
        let stat = self.long || self.by_time || self.by_size || self.json || console.has_colours();
        let with = ListWith { stat, ..ListWith::default() };
        let merged = context.files(url).list_everywhere(&url.path, &with).await?;
        Ok((merged.entries, merged.failed))
    }

    async fn everything(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        first: &mut bool,
    ) -> anyhow::Result<()> {
        let Some(mut walk) = context.walk(console, url).await else { return Ok(()) };
        while let Some(mut folder) = walk.next().await {
            self.enter(&mut walk, &mut folder);
            self.head(context, console, Some(&folder.url), first);
            folder.failed.iter().for_each(|error| console.fail(&folder.url, error));
            let item = |entry: &walk::Item| Item {
                name: entry.name.to_string(),
                url: Some(folder.child(entry)),
                stat: entry.stat.clone(),
            };
            self.show(console, folder.entries.iter().map(item).collect());
            console.pass().await?;
        }
        Ok(())
    }

    /// Enters the folders of a folder, in the order in which they are shown.
    fn enter(&self, walk: &mut Walk, folder: &mut Folder) {
        let shown = folder.entries.iter().filter(|entry| is_dir(entry) && self.shows(&entry.name));
        let mut below: Vec<walk::Item> = shown.cloned().collect();
        below.sort_by(|a, b| self.order((&a.name, a.stat.as_ref()), (&b.name, b.stat.as_ref())));
        walk.enter(folder, &below);
    }

    fn shows(&self, name: &str) -> bool {
        self.all || !name.starts_with('.')
    }

    fn order(&self, a: (&str, Option<&StatInfo>), b: (&str, Option<&StatInfo>)) -> std::cmp::Ordering {
        let key = |stat: Option<&StatInfo>| {
            let time = stat.filter(|_| self.by_time).map_or(0, |stat| stat.mtime);
            let size = stat.filter(|_| self.by_size).map_or(0, |stat| stat.size);
            Reverse((time, size))
        };
        let order = key(a.1).cmp(&key(b.1)).then_with(|| a.0.cmp(b.0));
        if self.reverse { order.reverse() } else { order }
    }

    fn head(&self, context: &Context, console: &Console, url: Option<&Url>, first: &mut bool) {
        if let Some(url) = url.filter(|_| !self.json) {
            console.heading(!*first, format_args!("{}:", context.name(url)));
        }
        *first = false;
    }

    fn show(&self, console: &Console, mut items: Vec<Item>) {
        items.sort_by(|a, b| self.order((&a.name, a.stat.as_ref()), (&b.name, b.stat.as_ref())));
        // What was named is shown, whatever its name.
        items.retain(|item| item.name.contains('/') || self.shows(&item.name));
        if self.json {
            for Item { name, url, stat } in &items {
                console.json(&text::facts(name, url.as_ref(), stat.as_ref()).into());
            }
            return;
        }
        let colour =
            |item: &Item| item.stat.as_ref().filter(|_| console.has_colours()).and_then(text::colour);
        if self.long {
            let rows: Vec<Vec<String>> = items.iter().map(|item| self.row(item)).collect();
            let colours: Vec<Option<Colour>> = items.iter().map(colour).collect();
            use Align::{Left, Right};
            console.put(&columns::coloured_table(&[Left, Left, Left, Right, Left, Left], &rows, &colours));
        } else if out().is_terminal() && !self.one {
            let names: Vec<_> = items.iter().map(|item| (item.name.as_str(), colour(item))).collect();
            console.put(&columns::lay_out(&names, out().width()));
        } else {
            for item in &items {
                console.put(out().text().add_coloured(&item.name, colour(item)).own("\n"));
            }
        }
    }

    fn row(&self, item: &Item) -> Vec<String> {
        let name = item.name.clone();
        let Some(stat) = &item.stat else {
            return vec!["?".to_owned(); 5].into_iter().chain([name]).collect();
        };
        let more = stat.more.as_ref();
        vec![
            stock::text::mode(stat),
            more.map_or("-", |more| &more.owner).to_owned(),
            more.map_or("-", |more| &more.group).to_owned(),
            text::size(stat.size, self.bytes),
            text::time(stat.mtime),
            name,
        ]
    }
}

fn item(context: &Context, url: &Url, stat: StatInfo) -> Item {
    Item { name: context.name(url), url: Some(url.clone()), stat: Some(stat) }
}

fn items_of(url: &Url, entries: Vec<Entry>) -> Vec<Item> {
    let item = |entry: Entry| {
        let url = entry.name.component().ok().map(|name| url.at(url.path.join(name)));
        Item { name: entry.name.to_string(), url, stat: entry.stat }
    };
    entries.into_iter().map(item).collect()
}
