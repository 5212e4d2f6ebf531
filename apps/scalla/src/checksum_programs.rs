//! The programs `xrdadler32` and `xrdcrc32c`: print the checksum of a local or remote file.
//!
//! Output and exit statuses are those of these programs in XRootD 5.5.3. `xrdcrc32c` also accepts
//! URLs.

use crate::environment;
use crate::printer::{err, out};
use crate::xrootd_compat::{self, CommandRuntime, XrdClStatus};
use client::digest::{Algorithm, Checksum, ChecksumRecord, RECORD_BYTES, RunningChecksum};
use client::{Error, OpenWith, Scheme, Url, WholeRead};
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes read by one call.
const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;
/// Seconds for which a file must be unchanged before its checksum is stored. Its time has a
/// resolution of seconds. A file that is changed again within the same second must not keep its old
/// checksum.
const SETTLED: i64 = 2;

const ADLER32_USAGE: &str = "\
Usage: xrdadler32 file. Prints the adler32 checksum of a file.
The file is a local one, standard input (if left out), or a root URL (also by XROOTD_VMP)
";
const CRC32C_USAGE: &str = "
Usage: xrdcrc32c [opts] {<path> | -}

<path> a file, local or at a root URL.
-      standard input, as in: xrdcp <url> - | xrdcrc32c -; also without a path.

opts: -d -h -n -s -x

-d reads past the cache of the system.
-h prints this.
-n prints no newline at the end.
-s prints the checksum without the path.
-x prints the checksum without leading zeroes.
";
/// Exit statuses of `xrdcrc32c`: for an invalid command line, and for an unreadable file.
const USAGE_STATUS: u8 = 1;
const FILE_STATUS: u8 = 3;

/// Runs `xrdadler32` with the arguments after the name. The checksum of a local file is stored in
/// an extended attribute, as at servers. A server is first asked for its stored checksum.
pub(crate) fn adler32(arguments: Vec<OsString>) -> ExitCode {
    let words = xrootd_compat::words(arguments);
    let name = words.first().map_or("-", String::as_str);
    if name == "-h" {
        out().literal(ADLER32_USAGE);
        return ExitCode::SUCCESS;
    }
    let mapped = mapped(name, &std::env::var("XROOTD_VMP").unwrap_or_default());
    let remote = remote(mapped.as_deref().unwrap_or(name));
    let sum = match (&remote, words.is_empty()) {
        (_, true) => {
            of_reader(Algorithm::Adler32, &mut std::io::stdin().lock()).map_err(|_| format!(" {name}"))
        }
        (Some(url), _) => of_server(Algorithm::Adler32, url, true).map_err(|_| format!(": {name}")),
        (None, _) => stored_or_computed(name).map_err(|_| format!(" {name}")),
    };
    match sum {
        Ok(sum) => {
            out().line(format_args!("{sum} {name}"));
            ExitCode::SUCCESS
        }
        Err(text) => {
            out().line(format_args!("Error_accessing{text}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs `xrdcrc32c` with the arguments after the name.
pub(crate) fn crc32c(arguments: Vec<OsString>) -> ExitCode {
    let words = xrootd_compat::words(arguments);
    let refuse = |text: &str| {
        err().line(format_args!("xrdcrc32c{text}"));
        err().literal(CRC32C_USAGE);
        ExitCode::from(USAGE_STATUS)
    };
    let (mut direct, mut newline, mut bare, mut short) = (false, true, false, false);
    let mut left = words.iter();
    let mut path = None;
    for word in left.by_ref() {
        match word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            None => {
                path = Some(word);
                break;
            }
            Some(letters) => {
                for letter in letters.chars() {
                    match letter {
                        'd' => direct = true,
                        'h' => {
                            err().literal(CRC32C_USAGE);
                            return ExitCode::SUCCESS;
                        }
                        'n' => newline = false,
                        's' => bare = true,
                        'x' => short = true,
                        other => return refuse(&format!("-{other} option is invalid")),
                    }
                }
            }
        }
    }
    let path = match path {
        Some(path) => path.as_str(),
        // XRootD 6 reads standard input in this case. A terminal is excluded.
        None if !std::io::stdin().is_terminal() => "-",
        None => return refuse("File path has not been specified."),
    };
    let name = if path == "-" { "stdin" } else { path };
    let sum = match remote(path) {
        _ if path == "-" => of_reader(Algorithm::Crc32c, &mut std::io::stdin().lock())
            .map_err(|error| format!("read stdin; {}", xrootd_compat::format::system(&error))),
        Some(url) => of_server(Algorithm::Crc32c, &url, false)
            .map_err(|error| format!("read {path}; {}", XrdClStatus::from(error).to_string().trim_end())),
        None => of_file(path, direct),
    };
    match sum {
        Ok(sum) => {
            let sum = if short { xrootd_compat::format::without_zeros(&sum).to_owned() } else { sum };
            let name = if bare { String::new() } else { format!(" {name}") };
            out().put(out().text().add(format_args!("{sum}{name}")).literal(if newline { "\n" } else { "" }));
            ExitCode::SUCCESS
        }
        Err(text) => {
            err().line(format_args!("xrdcrc32c: Unable to {text}"));
            ExitCode::from(FILE_STATUS)
        }
    }
}

/// Returns the URL of a remote file.
fn remote(name: &str) -> Option<Url> {
    let url = name.contains("://").then(|| Url::parse(name).ok())?;
    url.filter(|url| matches!(url.scheme, Scheme::Root | Scheme::Roots))
}

/// Returns the URL of a path by the rules `host[:port]:/prefix[=[/other]] …`. The last matching
/// rule counts.
fn mapped(path: &str, table: &str) -> Option<String> {
    table.split_whitespace().rev().find_map(|entry| {
        let (host, rule) = entry.split_once(":/")?;
        let (prefix, other) = rule.split_once('=').unwrap_or((rule, ""));
        let prefix = format!("/{prefix}");
        let prefix = prefix.trim_end_matches('/');
        // Without `=` the prefix is kept.
        let other = if rule.contains('=') { other } else { prefix };
        let below = path.strip_prefix(prefix)?;
        (below.is_empty() || below.starts_with('/')).then(|| format!("root://{host}/{other}{below}"))
    })
}

fn of_reader(algorithm: Algorithm, reader: &mut impl Read) -> std::io::Result<String> {
    let mut running = RunningChecksum::new(algorithm);
    // Direct I/O requires page-aligned memory.
    let mut memory = vec![0; CHUNK + PAGE];
    let begin = memory.as_ptr().align_offset(PAGE).min(PAGE);
    let buffer = memory.get_mut(begin..begin + CHUNK).unwrap_or_default();
    loop {
        let count = reader.read(buffer)?;
        if count == 0 {
            return Ok(running.finish().hex());
        }
        running.update(buffer.get(..count).unwrap_or_default());
    }
}

/// Returns the checksum from a server, or computes it from the data.
fn of_server(algorithm: Algorithm, url: &Url, ask: bool) -> Result<String, Error> {
    let client = environment::client(if ask { "xrdadler32" } else { "xrdcrc32c" });
    let runtime = CommandRuntime::new()
        .map_err(|status| Error::new("start", url, client::Cause::Unsupported(status.to_string())))?;
    runtime.wait(async {
        if ask {
            let answer = client.file_system(url).checksum(&url.path, Some(algorithm.name())).await;
            if let Ok(sum) = answer
                && sum.kind == algorithm.name()
            {
                return Ok(sum.value);
            }
        }
        let file = client.open(url, &OpenWith::read()).await?;
        let mut running = RunningChecksum::new(algorithm);
        let mut whole = WholeRead::of(&file).await?;
        loop {
            let data = file.read_pages(whole.offset(), CHUNK).await?;
            running.update(&data);
            let is_over = whole.advance(data.len(), CHUNK);
            if is_over.map_err(|cause| Error::new("read", url, cause))? {
                file.close().await?;
                return Ok(running.finish().hex());
            }
        }
    })
}

/// Returns the adler32 of a local file: the stored one, if the file has not changed since.
fn stored_or_computed(path: &str) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let before = file.metadata()?;
    let attribute = ChecksumRecord::attribute(Algorithm::Adler32);
    let mut value = vec![0; RECORD_BYTES + 1];
    if let Ok(length) = rustix::fs::fgetxattr(&file, attribute.as_str(), &mut value)
        && let Some(record) = value.get(..length).and_then(ChecksumRecord::decode)
        && record.fits(before.mtime(), u32::try_from(before.mtime_nsec()).unwrap_or(0), before.len())
    {
        return Ok(record.checksum.hex());
    }
    let text = of_reader(Algorithm::Adler32, &mut file)?;
    let after = file.metadata()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs().cast_signed());
    let same = (after.mtime(), after.mtime_nsec(), after.len())
        == (before.mtime(), before.mtime_nsec(), before.len());
    if let Some(sum) = Checksum::from_hex(Algorithm::Adler32, &text)
        && same
        && now - after.mtime() >= SETTLED
    {
        let record = ChecksumRecord::new(sum, after.mtime(), now).encode();
        // Not every file system and user can store it. Otherwise it is computed again the next
        // time.
        let _ = rustix::fs::fsetxattr(&file, attribute.as_str(), &record, rustix::fs::XattrFlags::empty());
    }
    Ok(text)
}

/// Computes the crc32c of a local file. Reads through the page cache are the fallback if direct
/// I/O is rejected.
fn of_file(path: &str, direct: bool) -> Result<String, String> {
    let message = |what: &str, error: &std::io::Error| {
        format!("{what} {path}; {}", xrootd_compat::format::system(error))
    };
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    let mut file = options.open(path).map_err(|error| message("open", &error))?;
    if direct {
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
        if let Ok(mut file) = options.custom_flags(flags).open(path)
            && let Ok(sum) = of_reader(Algorithm::Crc32c, &mut file)
        {
            return Ok(sum);
        }
    }
    of_reader(Algorithm::Crc32c, &mut file).map_err(|error| message("read", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_mapped_by_the_last_rule_that_fits() {
        let table = "h1:1094:/xr=/data h2:/xr/deep h3:/cut= bad";
        let cases = [
            ("/xr/a", Some("root://h1:1094//data/a")),
            ("/xr/deep/a", Some("root://h2//xr/deep/a")),
            ("/cut/a", Some("root://h3//a")),
            ("/xrx/a", None),
            ("relative", None),
        ];
        assert_eq!(mapped("/a/b", "h:7:/").as_deref(), Some("root://h:7//a/b"));
        for (path, expected) in cases {
            assert_eq!(mapped(path, table).as_deref(), expected, "{path}");
        }
    }
}
