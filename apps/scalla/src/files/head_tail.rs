//! `scalla head` and `tail`: print the ends of files.

use std::time::Duration;

use client::{Bytes, Error, Reader, Url, WholeRead};

use super::cat::{CHUNK, open_sequential, open_whole};
use super::console::Console;
use super::context::Context;
use crate::quantity;
use crate::usage_error::UsageError;

/// Default number of lines.
const LINES: u64 = 10;
/// Bytes read by one request to find the last lines.
const BLOCK: u64 = 64 * 1024;
/// Interval between two checks of a growing file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Amount of data at the beginning of a file.
#[derive(clap::Args, Clone, Copy, Debug)]
struct HeadRange {
    /// Number of lines.
    #[arg(long, short = 'n', value_name = "N", default_value_t = LINES)]
    lines: u64,
    /// Number of bytes; accepts the suffixes k, M and G.
    #[arg(long, short = 'c', value_name = "SIZE", value_parser = quantity::bytes, conflicts_with = "lines")]
    bytes: Option<u64>,
}

/// Part of a file to print.
#[derive(clap::Args, Clone, Copy, Debug)]
struct TailRange {
    /// Number of lines; +N prints all lines from line N on.
    #[arg(long, short = 'n', value_name = "[+]N", default_value = "10", value_parser = line_count)]
    lines: TailStart,
    /// Number of bytes; accepts the suffixes k, M and G. +SIZE prints all from that byte on, where
    /// 1 is the first.
    #[arg(long, short = 'c', value_name = "[+]SIZE", value_parser = byte_count, conflicts_with = "lines")]
    bytes: Option<TailStart>,
}

/// The start of a part that extends to the end of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TailStart {
    /// This many before the end.
    Last(u64),
    /// At this position, counted from 1.
    At(u64),
}

fn begin(text: &str, number: impl Fn(&str) -> Result<u64, String>) -> Result<TailStart, String> {
    match text.strip_prefix('+') {
        Some(rest) if !rest.starts_with('+') => number(rest).map(TailStart::At),
        _ => number(text).map(TailStart::Last),
    }
}

fn line_count(text: &str) -> Result<TailStart, String> {
    begin(text, |digits| digits.parse().map_err(|_| "no number: write 10 or +10".to_owned()))
}

fn byte_count(text: &str) -> Result<TailStart, String> {
    begin(text, quantity::bytes)
}

/// Print the beginning of files.
#[derive(clap::Args, Debug)]
pub(crate) struct HeadCommand {
    /// Files to print; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    #[command(flatten)]
    amount: HeadRange,
}

/// Print the end of files.
#[derive(clap::Args, Debug)]
pub(crate) struct TailCommand {
    /// Files to print; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
    #[command(flatten)]
    part: TailRange,
    /// Continue with appended data until interrupted. Accepts only one file.
    #[arg(long, short)]
    follow: bool,
}

impl HeadCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let urls = context.expand(console, &self.urls).await?;
        for (index, url) in urls.iter().enumerate() {
            heading(context, console, urls.len(), index, url);
            if let Err(error) = head(context, console, url, self.amount).await? {
                console.fail(url, &error);
            }
        }
        Ok(())
    }
}

impl TailCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let urls = context.expand(console, &self.urls).await?;
        if self.follow && urls.len() > 1 {
            return Err(UsageError("--follow takes one file".to_owned()).into());
        }
        for (index, url) in urls.iter().enumerate() {
            heading(context, console, urls.len(), index, url);
            if let Err(error) = tail(context, console, url, self.part, self.follow).await? {
                console.fail(url, &error);
            }
        }
        Ok(())
    }
}

fn heading(context: &Context, console: &Console, files: usize, index: usize, url: &Url) {
    if files > 1 {
        console.heading(index > 0, format_args!("==> {} <==", context.name(url)));
    }
}

async fn head(
    context: &Context,
    console: &Console,
    url: &Url,
    amount: HeadRange,
) -> anyhow::Result<Result<(), Error>> {
    let (reader, mut whole) = match open_whole(context, url).await {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    let mut lines = amount.lines;
    // Usually little data is needed.
    let mut length = BLOCK as usize;
    loop {
        let left = amount.bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(whole.offset()));
        length = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        if length == 0 || lines == 0 {
            break;
        }
        let data = match reader.read(whole.offset(), length).await {
            Ok(data) => data,
            Err(error) => return Ok(Err(error)),
        };
        let wanted = if amount.bytes.is_some() { data.len() } else { first_lines(&data, &mut lines) };
        console.content(data.get(..wanted).unwrap_or_default());
        console.flush_if_due().await?;
        match whole.advance(data.len(), length) {
            Ok(false) => {}
            Ok(true) => break,
            Err(cause) => return Ok(Err(Error::new("read", url, cause))),
        }
        length = CHUNK;
    }
    Ok(reader.file().close().await)
}

/// Returns the length of the first `lines` lines. Subtracts the number of lines found from `lines`.
fn first_lines(data: &[u8], lines: &mut u64) -> usize {
    for (index, byte) in data.iter().enumerate() {
        if *byte == b'\n' {
            *lines -= 1;
            if *lines == 0 {
                return index + 1;
            }
        }
    }
    data.len()
}

async fn tail(
    context: &Context,
    console: &Console,
    url: &Url,
    part: TailRange,
    follow: bool,
) -> anyhow::Result<Result<(), Error>> {
    let begun = async {
        let reader = open_sequential(context, url).await?;
        let size = reader.file().stat().await?.size;
        let offset = match (part.bytes, part.lines) {
            (Some(TailStart::Last(bytes)), _) => size.saturating_sub(bytes),
            (Some(TailStart::At(byte)), _) => byte.saturating_sub(1).min(size),
            (None, TailStart::Last(lines)) => last_lines(&reader, url, size, lines).await?,
            (None, TailStart::At(line)) => line_start(&reader, url, size, line).await?,
        };
        Ok((reader, WholeRead::part(offset, size)))
    };
    let (reader, mut rest) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        // Bypasses the reader's cache, which reflects the file at the time when it was opened.
        let data: Bytes = match reader.file().read_pages(rest.offset(), CHUNK).await {
            Ok(data) => data,
            Err(error) => return Ok(Err(error)),
        };
        console.content(&data);
        match rest.advance(data.len(), CHUNK) {
            Ok(false) => {
                console.flush_if_due().await?;
                continue;
            }
            Ok(true) => {}
            // A followed file may have been truncated, which its status shows.
            Err(_) if follow => {}
            Err(cause) => return Ok(Err(Error::new("read", url, cause))),
        }
        if !follow {
            return Ok(reader.file().close().await);
        }
        console.flush().await?;
        tokio::time::sleep(POLL_INTERVAL).await;
        match reader.file().stat().await {
            Ok(stat) if stat.size < rest.offset() => {
                console.warn(format_args!("scalla: {url} was cut to {} bytes", stat.size));
                rest = WholeRead::part(stat.size, stat.size);
            }
            Ok(stat) => rest = WholeRead::part(rest.offset(), stat.size),
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Returns the offset of a line, counted from 1, or the end if there are fewer lines.
async fn line_start(reader: &Reader, url: &Url, size: u64, line: u64) -> Result<u64, Error> {
    let (mut whole, mut before) = (WholeRead::part(0, size), line.saturating_sub(1));
    while before > 0 {
        let data = reader.read(whole.offset(), CHUNK).await?;
        let offset = whole.offset() + first_lines(&data, &mut before) as u64;
        let is_over = whole.advance(data.len(), CHUNK);
        if is_over.map_err(|cause| Error::new("read", url, cause))? || before == 0 {
            return Ok(offset);
        }
    }
    Ok(0)
}

/// Returns the offset of the last lines.
async fn last_lines(reader: &Reader, url: &Url, size: u64, lines: u64) -> Result<u64, Error> {
    if lines == 0 {
        return Ok(size);
    }
    let mut end = size;
    // The line end at the end of the file does not begin a line.
    let mut left = lines;
    while end > 0 {
        let from = end.saturating_sub(BLOCK);
        let data = block(reader, url, from, end).await?;
        for (index, byte) in data.iter().enumerate().rev() {
            let after = from + index as u64 + 1;
            if *byte == b'\n' && after < size {
                left -= 1;
                if left == 0 {
                    return Ok(after);
                }
            }
        }
        end = from;
    }
    Ok(0)
}

/// Reads all bytes of a range, with as many requests as needed.
async fn block(reader: &Reader, url: &Url, from: u64, end: u64) -> Result<Vec<u8>, Error> {
    let mut part = WholeRead::part(from, end);
    let mut data = Vec::new();
    while part.offset() < end {
        let length = usize::try_from(end - part.offset()).unwrap_or(CHUNK);
        let piece = reader.file().read_pages(part.offset(), length).await?;
        part.advance(piece.len(), length).map_err(|cause| Error::new("read", url, cause))?;
        data.extend_from_slice(&piece);
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_from_the_end_or_from_the_beginning() {
        assert_eq!(line_count("3"), Ok(TailStart::Last(3)));
        assert_eq!(line_count("+3"), Ok(TailStart::At(3)));
        assert_eq!(byte_count("+1k"), Ok(TailStart::At(1024)));
        for bad in ["", "+", "++1", "-1", "x"] {
            assert!(line_count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_are_counted_over_pieces() {
        let mut lines = 3;
        assert_eq!(first_lines(b"a\nb", &mut lines), 3);
        assert_eq!(lines, 2);
        assert_eq!(first_lines(b"c\nd\ne\n", &mut lines), 4);
        assert_eq!(lines, 0);
    }
}
