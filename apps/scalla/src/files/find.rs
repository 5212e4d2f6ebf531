//! `scalla find`.

use std::time::{SystemTime, UNIX_EPOCH};

use client::copy::matches;
use client::{Error, StatInfo, Url};

use super::console::Console;
use super::context::{Context, last};
use super::format;
use super::walk::WalkItem;
use crate::printer::out;
use crate::quantity;
use crate::usage_error::UsageError;

/// Seconds per day.
const DAY: i64 = 86_400;

/// Find files and directories.
///
/// Print each path that matches all conditions, one per line. If several names or types are given,
/// one of them must match.
#[derive(clap::Args, Debug)]
pub(crate) struct FindCommand {
    /// Files and directories to search; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,
    /// Match names against this pattern (*, ?, [a-z]).
    #[arg(long, short, value_name = "PATTERN")]
    name: Vec<String>,
    /// Match names against this pattern, ignoring case.
    #[arg(long, value_name = "PATTERN")]
    iname: Vec<String>,
    /// Match by type: f files, d directories, o others.
    #[arg(long = "type", short = 't', value_name = "TYPE", value_delimiter = ',')]
    kind: Vec<EntryType>,
    /// Match files larger (+1M) or smaller (-1M) than SIZE bytes, or of exactly that size; may be
    /// repeated.
    #[arg(long, short, value_name = "[+-]SIZE", value_parser = size, allow_hyphen_values = true)]
    size: Vec<NumberCondition>,
    /// Match entries modified after this file was, or after this time (2026-11-20 or
    /// 2026-11-20T15:24).
    #[arg(long, value_name = "URL|TIME")]
    newer: Option<String>,
    /// Match entries modified less than (-7), more than (+7) or exactly DAYS days ago; may be
    /// repeated.
    #[arg(long, value_name = "[+-]DAYS", value_parser = days, allow_hyphen_values = true)]
    mtime: Vec<NumberCondition>,
    /// Descend at most N levels; 0 is the arguments themselves.
    #[arg(long, alias = "maxdepth", short = 'd', value_name = "N")]
    max_depth: Option<usize>,
    /// Match only entries at least N levels down.
    #[arg(long, alias = "mindepth", value_name = "N", default_value_t = 0)]
    min_depth: usize,
    /// End each path with a zero byte instead of a newline.
    #[arg(long = "print0", short = '0', conflicts_with = "json")]
    zero: bool,
    /// Print each result as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Type of an entry.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum EntryType {
    #[value(name = "f", alias = "file")]
    File,
    #[value(name = "d", alias = "directory")]
    Directory,
    #[value(name = "o", alias = "other")]
    Other,
}

impl EntryType {
    const fn of(stat: &StatInfo) -> Self {
        match (stat.is_dir(), stat.is_file()) {
            (true, _) => Self::Directory,
            (_, true) => Self::File,
            _ => Self::Other,
        }
    }
}

/// A number with its comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NumberCondition {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl NumberCondition {
    fn parse(text: &str, number: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(more), _) => number(more).map(Self::More),
            (_, Some(less)) => number(less).map(Self::Less),
            _ => number(text).map(Self::Exactly),
        }
    }

    const fn holds(self, number: u64) -> bool {
        match self {
            Self::More(than) => number > than,
            Self::Less(than) => number < than,
            Self::Exactly(same) => number == same,
        }
    }
}

fn size(text: &str) -> Result<NumberCondition, String> {
    NumberCondition::parse(text, quantity::bytes)
}

fn days(text: &str) -> Result<NumberCondition, String> {
    NumberCondition::parse(text, |days| days.parse().map_err(|_| "not a number of days".to_owned()))
}

/// The search criteria, with all values resolved.
struct SearchCriteria<'a> {
    find: &'a FindCommand,
    inames: Vec<String>,
    /// Seconds since the epoch.
    now: i64,
    after: Option<i64>,
}

impl FindCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let texts = context.urls_or_base(&self.urls)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs().cast_signed());
        let after = match &self.newer {
            Some(text) => match self.time_bound(context, text).await? {
                Ok(time) => Some(time),
                Err((url, error)) => {
                    console.fail(&url, &error);
                    return Ok(());
                }
            },
            None => None,
        };
        let inames = self.iname.iter().map(|name| name.to_lowercase()).collect();
        let criteria = SearchCriteria { find: &self, inames, now, after };
        for url in context.expand(console, &texts).await? {
            match context.files(&url).stat(&url.path).await {
                Ok(stat) => {
                    criteria.print_match(context, console, &url, last(&url.path), Some(&stat), 0);
                    if stat.is_dir() && self.max_depth != Some(0) {
                        self.search_below(context, console, &url, &criteria).await?;
                    }
                }
                Err(error) => console.fail(&url, &error),
            }
        }
        Ok(())
    }

    async fn search_below(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        criteria: &SearchCriteria<'_>,
    ) -> anyhow::Result<()> {
        let Some(mut walk) = context.walk(console, url).await else { return Ok(()) };
        while let Some(mut directory) = walk.next().await {
            let depth = directory.depth + 1;
            if self.max_depth.is_none_or(|most| depth < most) {
                walk.enter_all(&mut directory);
            }
            directory.failed.iter().for_each(|error| console.fail(&directory.url, error));
            for entry in directory.entries.iter() {
                let WalkItem { name, stat, .. } = &entry;
                criteria.print_match(context, console, &directory.child(&entry), name, stat.as_ref(), depth);
                console.flush_if_due().await?;
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    /// Returns the time after which an entry must have changed.
    async fn time_bound(
        &self,
        context: &Context,
        text: &str,
    ) -> Result<Result<i64, (Url, Error)>, UsageError> {
        if let Some(time) = time(text) {
            return Ok(Ok(time));
        }
        let url = context
            .url(text)
            .map_err(|UsageError(why)| UsageError(format!("{why}; or name a time, such as 2026-11-20")))?;
        let stat = context.files(&url).stat(&url.path).await;
        Ok(stat.map(|stat| stat.mtime).map_err(|error| (url, error)))
    }
}

/// Parses a date or a time, in the local time zone or in the one given.
fn time(text: &str) -> Option<i64> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_second());
    }
    let civil: jiff::civil::DateTime = text.parse().ok()?;
    civil.to_zoned(client::local_zone()).ok().map(|time| time.timestamp().as_second())
}

impl SearchCriteria<'_> {
    fn is_match(&self, name: &str, stat: Option<&StatInfo>, depth: usize) -> bool {
        let find = self.find;
        if depth < find.min_depth {
            return false;
        }
        // Includes names that begin with a dot, because a search should cover everything.
        let like = |pattern: &str, name: &str| matches(pattern, name) || matches_hidden(pattern, name);
        let named = find.name.is_empty() && find.iname.is_empty()
            || find.name.iter().any(|pattern| like(pattern, name))
            || self.inames.iter().any(|pattern| like(pattern, &name.to_lowercase()));
        let needs_stat =
            !find.kind.is_empty() || !find.size.is_empty() || !find.mtime.is_empty() || self.after.is_some();
        named
            && match stat {
                None => !needs_stat,
                Some(stat) => {
                    let days = u64::try_from(self.now.saturating_sub(stat.mtime) / DAY).unwrap_or(0);
                    (find.kind.is_empty() || find.kind.contains(&EntryType::of(stat)))
                        && (find.size.is_empty()
                            || !stat.is_dir() && find.size.iter().all(|bound| bound.holds(stat.size)))
                        && find.mtime.iter().all(|bound| bound.holds(days))
                        && self.after.is_none_or(|after| stat.mtime > after)
                }
            }
    }

    fn print_match(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        name: &str,
        stat: Option<&StatInfo>,
        depth: usize,
    ) {
        if !self.is_match(name, stat, depth) {
            return;
        }
        if self.find.json {
            console.json(format::facts(&url.path, Some(url), stat).into());
        } else if self.find.zero {
            console.put(out().text().add(context.name(url)).literal("\0"));
        } else {
            console.line(context.name(url));
        }
    }
}

/// Reports whether a pattern that does not begin with a dot matches a name that does.
fn matches_hidden(pattern: &str, name: &str) -> bool {
    // Only `?` and `*` can match the leading dot. A class at the beginning of the pattern does not.
    name.strip_prefix('.').is_some_and(|rest| {
        pattern.strip_prefix('?').is_some_and(|pattern| matches(pattern, rest))
            || pattern.starts_with('*') && (matches(pattern, rest) || matches(pattern, &format!("x.{rest}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert_eq!(size("+1M"), Ok(NumberCondition::More(1 << 20)));
        assert_eq!(size("-2k"), Ok(NumberCondition::Less(2048)));
        assert_eq!(size("7"), Ok(NumberCondition::Exactly(7)));
        assert!(size("++1").is_err() && size("x").is_err() && days("1k").is_err());
        assert!(
            NumberCondition::More(1).holds(2)
                && !NumberCondition::More(1).holds(1)
                && NumberCondition::Less(1).holds(0)
        );
    }

    #[test]
    fn names_that_begin_with_a_dot_are_found_too() {
        let table = [
            ("*", ".a", true),
            ("*.root", ".x.root", true),
            ("*.root", ".root", true),
            ("?a", ".a", true),
            ("*b", ".a", false),
            ("a*", ".a", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches_hidden(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn times_as_people_write_them() {
        assert_eq!(time("1970-01-02T00:00:00Z"), Some(DAY));
        assert!(time("2026-11-20").is_some() && time("2026-11-20T15:24").is_some());
        assert!(time("root://h//a").is_none() && time("yesterday").is_none());
    }
}
