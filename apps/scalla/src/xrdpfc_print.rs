//! `xrdpfc_print`: shows the state of files in a disk cache, with the command line and output of
//! XRootD's program.

use crate::evaluation::load_here;
use crate::local_path::absolute;
use crate::local_time::local_time;
use crate::printer::{err, out, without_numbers};
use crate::xrootd_compat;
use crate::xrootd_compat::options::{self, OptionSpec};
use cache::{CINFO_BYTES_MAX, CacheAccess, CacheChecks, Cinfo};
use serde::Serialize as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const PROGRAM: &str = "xrdpfc_print";

const USAGE: &str = "\
Usage: xrdpfc_print [-h] [-c config_file] [-u B|kB|MB] [-v] [-j] [-i indent] path ...
";

const OPTIONS: [OptionSpec; 6] = [
    OptionSpec::valued(Some('c'), "config"),
    OptionSpec::switch(Some('h'), "help"),
    OptionSpec::valued(Some('i'), "indent"),
    OptionSpec::switch(Some('j'), "json"),
    OptionSpec::valued(Some('u'), "unit"),
    OptionSpec::switch(Some('v'), "verbose"),
];

/// End of the names of state files.
const SUFFIX: &str = ".cinfo";
/// Begin of paths that the configuration translates.
const LOGICAL: &str = "root:/";
/// Number of blocks in a line.
const BLOCKS_PER_LINE: usize = 64;
/// Maximum number of spaces by which JSON is indented.
const INDENT_MAX: usize = 64;

/// The unit of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum SizeUnit {
    Bytes,
    #[default]
    Kilobytes,
    Megabytes,
}

impl SizeUnit {
    const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "B",
            Self::Kilobytes => "kB",
            Self::Megabytes => "MB",
        }
    }

    const fn shift(self) -> u32 {
        match self {
            Self::Bytes => 0,
            Self::Kilobytes => 10,
            Self::Megabytes => 20,
        }
    }

    /// Returns the unit of the sizes of blocks.
    fn of_blocks(self) -> Self {
        if self == Self::Bytes { Self::Bytes } else { Self::Kilobytes }
    }

    /// Returns the width of a column of sizes.
    const fn width(self) -> usize {
        match self {
            Self::Bytes => 15,
            Self::Kilobytes | Self::Megabytes => 12,
        }
    }
}

/// A parsed command line.
#[derive(PartialEq, Eq, Default, Debug)]
struct CachePrintRequest {
    wants_help: bool,
    config: Option<PathBuf>,
    unit: SizeUnit,
    shows_blocks: bool,
    is_json: bool,
    indent: Option<usize>,
    paths: Vec<String>,
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let request = match parse(&xrootd_compat::words(arguments)) {
        Ok(request) => request,
        Err(text) => {
            err().line(format_args!("{PROGRAM}: {text}"));
            err().literal(USAGE);
            return ExitCode::FAILURE;
        }
    };
    if request.wants_help {
        out().literal(USAGE);
        return ExitCode::SUCCESS;
    }
    let mut printer = CachePrinter { request: &request, has_failed: false };
    match paths(&request) {
        Ok(paths) => paths.iter().for_each(|path| printer.path(path)),
        Err(text) => printer.fail(&text),
    }
    if printer.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Long options may have a single dash.
fn with_two_dashes(word: &str) -> String {
    let long = word.strip_prefix('-').filter(|name| OPTIONS.iter().any(|option| option.long == *name));
    long.map_or_else(|| word.to_owned(), |name| format!("--{name}"))
}

fn parse(words: &[String]) -> Result<CachePrintRequest, String> {
    // A negative indent is a value, and the default.
    let words: Vec<String> = words.iter().map(|word| with_two_dashes(word)).collect();
    let parsed = options::parse(&words, &OPTIONS).map_err(|error| error.to_string())?;
    let mut request = CachePrintRequest { paths: parsed.words, ..CachePrintRequest::default() };
    for (option, value) in parsed.options {
        match option {
            "config" => request.config = Some(value.into()),
            "help" => request.wants_help = true,
            "json" => request.is_json = true,
            "verbose" => request.shows_blocks = true,
            "unit" => {
                let units = [SizeUnit::Bytes, SizeUnit::Kilobytes, SizeUnit::Megabytes];
                let unit = units.into_iter().find(|unit| unit.name() == value);
                request.unit = unit.ok_or("the value of -unit must be B, kB or MB")?;
            }
            _ => {
                let indent: i64 = value.parse().map_err(|_| "the value of -indent must be a number")?;
                request.indent = usize::try_from(indent).ok();
                if request.indent.is_some_and(|indent| indent > INDENT_MAX) {
                    return Err(format!("the value of -indent must be at most {INDENT_MAX}"));
                }
            }
        }
    }
    if request.paths.is_empty() && !request.wants_help {
        return Err("there is no path".to_owned());
    }
    Ok(request)
}

/// Returns the paths with those of the cache in place of logical ones.
fn paths(request: &CachePrintRequest) -> Result<Vec<PathBuf>, String> {
    let is_logical = |path: &String| path.starts_with(LOGICAL);
    let root = match &request.config {
        Some(file) if request.paths.iter().any(is_logical) => Some(local_root(file)?),
        _ => None,
    };
    let path = |path: &String| match (path.strip_prefix(LOGICAL), &root) {
        (Some(name), Some(root)) => Ok(root.join(name.trim_start_matches('/'))),
        (Some(_), None) => Err(format!("{path}: set the configuration of the cache by -config")),
        (None, _) => Ok(PathBuf::from(path)),
    };
    request.paths.iter().map(path).collect()
}

/// Returns `oss.localroot` of a configuration. Directives that concern servers only are not checked.
fn local_root(file: &Path) -> Result<PathBuf, String> {
    let file = absolute(file).map_err(|error| error.to_string())?;
    File::open(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let root = load_here(&file, None).effective.storage.local_root.value;
    root.ok_or_else(|| format!("{} has no oss.localroot", file.display()))
}

struct CachePrinter<'a> {
    request: &'a CachePrintRequest,
    has_failed: bool,
}

impl CachePrinter<'_> {
    fn fail(&mut self, text: &str) {
        self.has_failed = true;
        err().line(format_args!("{PROGRAM}: {}", without_numbers(text)));
    }

    /// Prints a file, or all state files below a directory.
    fn path(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => self.directory(path),
            Ok(_) if path.to_string_lossy().ends_with(SUFFIX) => self.file(path),
            Ok(_) => self.fail(&format!("{}: the name does not end with {SUFFIX}", path.display())),
            Err(error) => self.fail(&format!("{}: {error}", path.display())),
        }
    }

    /// Prints the state files below a directory in the order of their names. Links to directories are
    /// not followed.
    fn directory(&mut self, top: &Path) {
        let mut left = vec![top.to_owned()];
        let mut is_first = true;
        while let Some(directory) = left.pop() {
            let names = fs::read_dir(&directory).and_then(|names| names.collect::<io::Result<Vec<_>>>());
            let names = match names {
                Ok(names) => names,
                Err(error) => {
                    self.fail(&format!("{}: {error}", directory.display()));
                    continue;
                }
            };
            let mut below = BTreeSet::new();
            let mut files = BTreeSet::new();
            for name in names {
                if name.file_type().is_ok_and(|kind| kind.is_dir()) {
                    below.insert(name.path());
                } else if name.file_name().to_string_lossy().ends_with(SUFFIX) {
                    files.insert(name.path());
                }
            }
            for file in files {
                if !std::mem::take(&mut is_first) && !self.request.is_json {
                    out().literal("\n");
                }
                self.file(&file);
            }
            left.extend(below.into_iter().rev());
        }
    }

    fn file(&mut self, path: &Path) {
        let cinfo = match read(path) {
            Ok(cinfo) => cinfo,
            Err(text) => return self.fail(&format!("{}: {text}", path.display())),
        };
        if self.request.is_json {
            let value = self.as_json(path, &cinfo);
            out().lines(format_args!("{}\n", indented(&value, self.request.indent)));
        } else {
            out().lines(self.as_text(path, &cinfo));
        }
    }

    fn as_text(&self, path: &Path, cinfo: &Cinfo) -> String {
        let unit = self.request.unit;
        let (size, block) = (cinfo.file_bytes >> unit.shift(), cinfo.block_bytes >> unit.of_blocks().shift());
        let unverified = match cinfo.unverified_since {
            Some(since) if cinfo.checks == CacheChecks::None => format!(", no-cksum-time {}", date(since)),
            _ => String::new(),
        };
        let mut text = format!(
            "FILE: {}\nversion {}, created {}; cksum {}{unverified}\n\
             file_size {size} {}, buffer_size {block} {}, n_blocks {}, n_downloaded {}, state {} [{:.3}%]\n",
            out().shown(&path.to_string_lossy()),
            cinfo.version.number(),
            date(cinfo.created),
            checks_name(cinfo.checks),
            unit.name(),
            unit.of_blocks().name(),
            cinfo.blocks.len(),
            cinfo.blocks.present(),
            state_name(cinfo),
            percentage(cinfo),
        );
        if self.request.shows_blocks {
            text.push_str(&block_lines(cinfo));
        }
        let width = unit.width();
        let column = |name: &str| format!("{:>width$}", format!("{name}[{}]", unit.name()));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "Access records (N_acc_total={}):\n\
             Record Attach         Detach         Duration     N_ios N_mrg {} {} {}",
            cinfo.opens,
            column("B_hit"),
            column("B_miss"),
            column("B_bypass")
        );
        for (number, access) in cinfo.accesses.iter().enumerate() {
            let _ = writeln!(
                text,
                "{:<6} {:<14} {:<14} {:<8} {:>9} {:>5} {:>width$} {:>width$} {:>width$}",
                number + 1,
                moment(access.attached),
                moment(access.detached),
                duration(access),
                access.opens,
                access.merged,
                access.bytes_hit >> unit.shift(),
                access.bytes_missed >> unit.shift(),
                access.bytes_bypassed >> unit.shift(),
            );
        }
        text
    }

    fn as_json(&self, path: &Path, cinfo: &Cinfo) -> Value {
        let access = |(number, access): (usize, &CacheAccess)| {
            json!({
                "record": number + 1,
                "attach": moment(access.attached),
                "detach": moment(access.detached),
                "duration": duration(access),
                "n_ios": access.opens,
                "n_mrg": access.merged,
                "B_hit": access.bytes_hit,
                "B_miss": access.bytes_missed,
                "B_bypass": access.bytes_bypassed,
            })
        };
        let mut value = json!({
            "file": path.to_string_lossy(),
            "version": cinfo.version.number(),
            "created": date(cinfo.created),
            "cksum": checks_name(cinfo.checks),
            "file_size": cinfo.file_bytes,
            "buffer_size": cinfo.block_bytes,
            "n_blocks": cinfo.blocks.len(),
            "state_complete": state_name(cinfo),
            "state_percentage": percentage(cinfo),
            "n_acc_total": cinfo.opens,
            "accesses": cinfo.accesses.iter().enumerate().map(access).collect::<Vec<_>>(),
        });
        if let Some(object) = value.as_object_mut() {
            if let Some(since) = cinfo.unverified_since.filter(|_| cinfo.checks == CacheChecks::None) {
                object.insert("no-cksum-time".to_owned(), date(since).into());
            }
            if self.request.shows_blocks {
                let blocks = cinfo.blocks.iter().map(u8::from).collect::<Vec<_>>();
                object.insert("block_array".to_owned(), blocks.into());
            }
        }
        value
    }
}

/// Reads a state file.
fn read(path: &Path) -> Result<Cinfo, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    file.take(CINFO_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > CINFO_BYTES_MAX {
        return Err(format!("it has more than {CINFO_BYTES_MAX} bytes"));
    }
    Cinfo::decode(&bytes).map_err(|error| error.to_string())
}

/// Returns the lines of blocks, below the tens of their numbers.
fn block_lines(cinfo: &Cinfo) -> String {
    let blocks: Vec<bool> = cinfo.blocks.iter().collect();
    let width = blocks.len().to_string().len();
    let margin = " ".repeat(width + 1);
    let tens = (1..=6).map(|ten| format!("{ten:>10}")).collect::<String>();
    // The number of a ten is above its block.
    let tens = format!(" {tens}");
    let ones = (0..BLOCKS_PER_LINE).map(|one| (one % 10).to_string()).collect::<String>();
    let mut text = format!("printing {} blocks:\n{margin}{tens}\n{margin}{ones}\n", blocks.len());
    for (line, states) in blocks.chunks(BLOCKS_PER_LINE).enumerate() {
        let states = states.iter().map(|is_present| if *is_present { 'x' } else { '.' }).collect::<String>();
        let _ = writeln!(text, "{:>width$} {states}", line * BLOCKS_PER_LINE);
    }
    text
}

/// Formats JSON, in one line without an indent.
fn indented(value: &Value, indent: Option<usize>) -> String {
    let Some(indent) = indent else { return value.to_string() };
    let spaces = " ".repeat(indent);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match value.serialize(&mut writer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => value.to_string(),
    }
}

const fn checks_name(checks: CacheChecks) -> &'static str {
    match checks {
        CacheChecks::None => "none",
        CacheChecks::Cache => "cache",
        CacheChecks::Network => "net",
        CacheChecks::Both => "both",
    }
}

fn state_name(cinfo: &Cinfo) -> &'static str {
    if cinfo.is_complete() { "complete" } else { "incomplete" }
}

fn percentage(cinfo: &Cinfo) -> f64 {
    if cinfo.is_complete() {
        return 100.0;
    }
    100.0 * cinfo.blocks.present() as f64 / cinfo.blocks.len() as f64
}

fn date(seconds: i64) -> String {
    local_time(seconds, "%a %b %e %H:%M:%S %Y").unwrap_or_else(|| seconds.to_string())
}

/// Returns the begin or end of an access; 0 is an end that is missing.
fn moment(seconds: i64) -> String {
    let shown = (seconds != 0).then(|| local_time(seconds, "%y%m%d:%H%M%S")).flatten();
    shown.unwrap_or_else(|| "------:------".to_owned())
}

fn duration(access: &CacheAccess) -> String {
    let seconds = access.duration.max(0);
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
