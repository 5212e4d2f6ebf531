//! `scalla checksum`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::Context as _;
use client::digest::{Algorithm, RunningChecksum};
use client::xroot::ErrorCode;
use client::{Error, FileChecksum, RemotePath, Url, join_bounded};
use serde_json::json;

use super::cat::{CHUNK, open_whole};
use super::console::Console;
use super::context::Context;
use crate::usage_error::UsageError;
use crate::xrootd_compat::format;
use base::Size;

/// Print checksums of files, or compare files with a list of checksums.
///
/// The server returns a stored checksum or computes it. Each line of a list contains TYPE:VALUE or
/// VALUE, blanks, and a URL or a path below the given URL. This is the output format of this
/// command, and of sha256sum and similar programs.
#[derive(clap::Args, Debug)]
pub(crate) struct ChecksumCommand {
    /// Files, which may contain wildcards; with --check, the directory that the paths of the list
    /// are relative to.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required_unless_present = "check")]
    urls: Vec<String>,
    /// Type: adler32, crc32, crc32c, zcrc32, md5, sha1, sha256, or another type of the server. The
    /// default is the first type of the server.
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// Read the files and compute the checksum on this machine.
    #[arg(long, requires = "kind")]
    read: bool,
    /// Compare with the checksums in this file (- is standard input).
    #[arg(long, short, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    check: Option<String>,
    /// With --check, print only files that differ or fail.
    #[arg(long, short, requires = "check")]
    quiet: bool,
    /// Print each result as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// A line of a checksum list.
struct ChecksumListLine {
    url: Url,
    kind: String,
    value: String,
}

impl ChecksumCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        if self.read && self.kind.as_deref().is_some_and(|kind| Algorithm::from_name(kind).is_none()) {
            return Err(
                UsageError("with --read the type is one of those that --help names".to_owned()).into()
            );
        }
        if let Some(list) = &self.check {
            return self.compare(context, console, list).await;
        }
        let urls = context.expand(console, &self.urls).await?;
        let progress = Arc::new(ChecksumProgress::for_files(urls.len()));
        for some in urls.chunks(256) {
            let sum = |url: Url| {
                let (context, kind, read, progress) =
                    (context.clone(), self.kind.clone(), self.read, progress.clone());
                async move {
                    let sum = checksum_of(&context, &url, kind.as_deref(), read, &progress).await;
                    (url, sum)
                }
            };
            console.flush().await?;
            for (url, sum) in console.wait(join_bounded(some.to_vec(), sum), || progress.text()).await {
                match with_retry(context, &url, self.kind.as_deref(), self.read, sum, &progress).await {
                    Ok(FileChecksum { kind, value }) if self.json => {
                        console.json(json!({ "url": url.to_string(), "type": kind, "value": value }));
                    }
                    Ok(FileChecksum { kind, value }) => {
                        console.line(format_args!("{kind}:{value}  {}", context.name(&url)));
                    }
                    Err(error) => console.fail(&url, &error),
                }
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    async fn compare(&self, context: &Context, console: &Console, list: &str) -> anyhow::Result<()> {
        let text = if list == "-" {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(list)
        };
        let text = text.with_context(|| format!("cannot read {list}"))?;
        let base = match self.urls.as_slice() {
            [] => context.base.clone(),
            [base] => Some(context.url(base)?),
            _ => return Err(UsageError("--check takes one directory".to_owned()).into()),
        };
        let within = Context::new(context.client.clone(), base);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let expected: Result<Vec<ChecksumListLine>, UsageError> = lines
            .map(|(index, line)| self.expected(&within, line, &format!("{list}:{}", index + 1)))
            .collect();
        let expected = expected?;
        let progress = Arc::new(ChecksumProgress::for_files(expected.len()));
        let sum = |expected: ChecksumListLine| {
            let (context, read, progress) = (context.clone(), self.read, progress.clone());
            async move {
                let sum = checksum_of(&context, &expected.url, Some(&expected.kind), read, &progress).await;
                (expected, sum)
            }
        };
        for (ChecksumListLine { url, kind, value }, sum) in
            console.wait(join_bounded(expected, sum), || progress.text()).await
        {
            let facts = [("url", url.to_string().into()), ("type", kind.as_str().into())];
            match with_retry(context, &url, Some(&kind), self.read, sum, &progress).await {
                // Some servers and programs omit leading zeros.
                Ok(sum) if sum.kind == kind && without_zeros(&sum.value) == without_zeros(&value) => {
                    if self.json {
                        console.json(
                            json!({ "url": url.to_string(), "type": kind, "value": value, "ok": true }),
                        );
                    } else if !self.quiet {
                        console.line(format_args!("{}: ok", context.name(&url)));
                    }
                }
                Ok(sum) => {
                    let FileChecksum { kind: other, value: found } = sum;
                    let text = format!("{url}: {other} is {found}, but should be {kind}:{value}");
                    console.fail_with(&facts, &text);
                }
                Err(error) => console.fail(&url, &error),
            }
            console.flush_if_due().await?;
        }
        Ok(())
    }

    fn expected(&self, within: &Context, line: &str, place: &str) -> Result<ChecksumListLine, UsageError> {
        let wrong = |why: &str| UsageError(format!("{place}: {why}"));
        let (sum, name) = line
            .trim_end_matches('\r')
            .split_once(char::is_whitespace)
            .ok_or_else(|| wrong("a line has a checksum, blanks, and a name"))?;
        // Lists of binary files have an asterisk before the name.
        let name = name.strip_prefix([' ', '*']).unwrap_or(name);
        let (kind, value) = match sum.split_once(':') {
            Some((kind, value)) => (Some(kind.to_ascii_lowercase()), value),
            None => (None, sum),
        };
        let known = match value.len() {
            32 => Some("md5"),
            40 => Some("sha1"),
            64 => Some("sha256"),
            _ => None,
        };
        let kind = kind.or_else(|| self.kind.clone()).or_else(|| known.map(str::to_owned));
        let kind =
            kind.ok_or_else(|| wrong("of what type the checksum is cannot be seen; name it with --type"))?;
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong("there is no checksum"));
        }
        let url = match (&within.base, name.contains("://")) {
            // Paths of a list are below its directory, even those with a leading slash.
            (Some(base), false) => {
                let below = name.trim_start_matches("./");
                let path = RemotePath::new(format!("{}/{below}", base.path.trim_end_matches('/')));
                base.at(path.map_err(|why| wrong(&why.to_string()))?)
            }
            _ => within.url(name).map_err(|UsageError(why)| wrong(&why))?,
        };
        Ok(ChecksumListLine { url, kind, value: value.to_ascii_lowercase() })
    }
}

fn without_zeros(value: &str) -> &str {
    format::without_zeros(value)
}

/// Returns the result, with one retry: a server of release 5 may fail when it computes several
/// checksums at once.
async fn with_retry(
    context: &Context,
    url: &Url,
    kind: Option<&str>,
    read: bool,
    sum: Result<FileChecksum, Error>,
    progress: &ChecksumProgress,
) -> Result<FileChecksum, Error> {
    match sum {
        Err(error) if error.code() == Some(ErrorCode::SERVER_ERROR) => {
            checksum_of(context, url, kind, read, progress).await
        }
        sum => sum,
    }
}

/// The progress of checksums.
#[derive(Default)]
struct ChecksumProgress {
    files: usize,
    finished: AtomicUsize,
    /// Total size of the files read here, and the number of bytes received.
    size: AtomicU64,
    read: AtomicU64,
}

impl ChecksumProgress {
    fn for_files(files: usize) -> Self {
        Self { files, ..Self::default() }
    }

    fn text(&self) -> String {
        let files = match self.files {
            1 => String::new(),
            files => format!("{} of {files} files; ", self.finished.load(Ordering::Relaxed)),
        };
        match self.size.load(Ordering::Relaxed) {
            0 => format!("{files}waiting for the server's checksum"),
            size => {
                let read = self.read.load(Ordering::Relaxed);
                format!("{files}{} of {} read", Size(read), Size(size))
            }
        }
    }
}

/// Returns the checksum from the server, or computes it from the data.
async fn checksum_of(
    context: &Context,
    url: &Url,
    kind: Option<&str>,
    read: bool,
    progress: &ChecksumProgress,
) -> Result<FileChecksum, Error> {
    let sum = match kind.and_then(Algorithm::from_name).filter(|_| read) {
        Some(algorithm) => compute(context, url, algorithm, progress).await,
        None => context.files(url).checksum(&url.path, kind).await,
    };
    progress.finished.fetch_add(1, Ordering::Relaxed);
    sum
}

/// Computes the checksum from the data.
async fn compute(
    context: &Context,
    url: &Url,
    algorithm: Algorithm,
    progress: &ChecksumProgress,
) -> Result<FileChecksum, Error> {
    if url.is_http() {
        return client::copy::checksum_by_reading(&context.client, url, algorithm).await;
    }
    let (reader, mut whole) = open_whole(context, url).await?;
    progress.size.fetch_add(whole.size(), Ordering::Relaxed);
    let mut running = RunningChecksum::new(algorithm);
    loop {
        let data = reader.read(whole.offset(), CHUNK).await?;
        running.update(&data);
        progress.read.fetch_add(data.len() as u64, Ordering::Relaxed);
        let is_over = whole.advance(data.len(), CHUNK);
        if is_over.map_err(|cause| Error::new("read", url, cause))? {
            reader.file().close().await?;
            return Ok(FileChecksum { kind: algorithm.name().to_owned(), value: running.finish().hex() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_what_is_waited_for() {
        assert_eq!(ChecksumProgress::for_files(1).text(), "waiting for the server's checksum");
        let progress = ChecksumProgress::for_files(3);
        progress.finished.store(2, Ordering::Relaxed);
        assert_eq!(progress.text(), "2 of 3 files; waiting for the server's checksum");
        progress.size.store(4096, Ordering::Relaxed);
        progress.read.store(1024, Ordering::Relaxed);
        assert_eq!(progress.text(), "2 of 3 files; 1.00 KiB of 4.00 KiB read");
    }
}
