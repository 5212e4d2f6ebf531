//! `frm_xfrd`, `frm_purged` and `frm_xfragent`: transfers and purges beside the server, with the command lines
//! of XRootD's programs.

use crate::evaluation::evaluation;
use crate::exit_status::FAILED;
use crate::printer::{err, out};
use crate::quantity::configured_time;
use config::{ConfigInput, LocalFiles, Overrides, Strictness};
use server::log::{Levels, Retention};
use server::{AgentOutput, FrmDaemon, Launch, LogTarget, PurgeFree, PurgeOptions, PurgeOrder, TransferAgent};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const XFRD: &str = "frm_xfrd";
const PURGED: &str = "frm_purged";
const AGENT: &str = "frm_xfragent";

/// The usage message. `PROGRAM` stands for the name.
const USAGE: &str = "
Usage: PROGRAM  [-b] [-c <cfgfn>] [-d] [-f] [-k {num|sz{k|m|g}|sig] [-l [=]<fn>] [-n name]
 [-s pidfile] [-S site] [-T] [-v] [-z]

";
const PURGED_USAGE: &str = "
Usage: PROGRAM  [-b] [-c <cfgfile>] [-d] [-f] [-k {num|sz{k|m|g}|sig] [-l [=]<fn>] [-n name] [-O free[,hold]]
 [-s pidfile] [-S site] [-T] [-v] [-w time] [-z] [<spaces>] [<paths>]

";

/// The variable that names the configuration file, and the file without it.
const CONFIG_VARIABLE: &str = "XRDCONFIGFN";
const CONFIG_DEFAULT: &str = "/etc/xrootd/xrootd.cf";

/// Set for a daemon that has replaced itself. It is in the background already.
const RESTARTED: &str = "SCALLA_FRM_RESTARTED";

/// Exit status of an agent that cannot work, and of one whose input has ended.
const NOT_STARTED: u8 = 4;
const INPUT_ENDED: u8 = 8;

/// Maximum length of a line of input in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Returns the configuration file without `-c`.
pub(crate) fn configuration_file() -> PathBuf {
    let named = std::env::var_os(CONFIG_VARIABLE).filter(|name| !name.is_empty());
    named.map_or_else(|| PathBuf::from(CONFIG_DEFAULT), PathBuf::from)
}

/// Parses options of one letter up to the first other word, and returns the words from there. Letters may be combined, and
/// a value may follow its letter at once. `set` receives each letter and a function that takes its value.
pub(crate) fn lettered_options(
    arguments: Vec<OsString>,
    mut set: impl FnMut(u8, &mut dyn FnMut() -> Result<OsString, String>) -> Result<(), String>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut rest = arguments.into_iter().map(OsString::into_vec).peekable();
    while let Some(word) = rest.next_if(|word| word.len() > 1 && word.starts_with(b"-")) {
        if word == b"--" {
            break;
        }
        let mut letters = word.get(1..).unwrap_or_default();
        while let Some((&letter, behind)) = letters.split_first() {
            letters = behind;
            let mut has_value = false;
            set(letter, &mut || {
                has_value = true;
                let attached = Some(behind.to_vec()).filter(|value| !value.is_empty());
                attached.or_else(|| rest.next()).map(OsString::from_vec).ok_or_else(|| invalid(letter))
            })?;
            if has_value {
                break;
            }
        }
    }
    Ok(rest.collect())
}

/// Returns the message about a letter that is no option, or has no value.
pub(crate) fn invalid(letter: u8) -> String {
    format!("'{}' option is invalid", char::from(letter))
}

/// Checks the name of an instance, which becomes that of a directory.
pub(crate) fn instance(value: &OsStr) -> Result<String, String> {
    let name = value.to_string_lossy().into_owned();
    match name.is_empty() || name.contains('/') || name.starts_with('.') || name.contains(char::is_whitespace)
    {
        true => Err(format!("'{name}' is not the name of an instance")),
        false => Ok(name),
    }
}

/// A parsed command line.
#[derive(PartialEq, Eq, Default, Debug)]
struct DaemonOptions {
    background: bool,
    config: Option<PathBuf>,
    debug: bool,
    wants_help: bool,
    retention: Option<String>,
    log: Option<OsString>,
    instance: Option<String>,
    order: Option<String>,
    pid_file: Option<PathBuf>,
    site: Option<String>,
    is_test: bool,
    wait: Option<String>,
    precise: bool,
    words: Vec<String>,
}

impl DaemonOptions {
    /// Parses options up to the first other word. They may be combined.
    fn parse(program: &str, arguments: Vec<OsString>) -> Result<Self, String> {
        let mut options = Self::default();
        let words = lettered_options(arguments, |letter, value| {
            if options.switch(letter) {
                return Ok(());
            }
            let known: &[u8] = if program == PURGED { b"cklnsSwO" } else { b"cklmnsS" };
            if !known.contains(&letter) {
                return Err(invalid(letter));
            }
            options.set(letter, value()?)
        })?;
        options.words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        if program != PURGED && !options.words.is_empty() {
            return Err(format!("'{}' is not an option", options.words.join(" ")));
        }
        Ok(options)
    }

    /// Sets an option without a value. `-f` has no effect: there are no files of old tools to be removed.
    fn switch(&mut self, letter: u8) -> bool {
        match letter {
            b'b' => self.background = true,
            b'd' => self.debug = true,
            b'h' => self.wants_help = true,
            b'T' => self.is_test = true,
            b'z' => self.precise = true,
            b'f' | b'v' => {}
            _ => return false,
        }
        true
    }

    fn set(&mut self, letter: u8, value: OsString) -> Result<(), String> {
        let text = || value.to_string_lossy().into_owned();
        match letter {
            b'c' => self.config = Some(value.into()),
            b'k' => self.retention = Some(text()),
            b'l' => self.log = Some(value),
            b'n' => self.instance = Some(instance(&value)?),
            b'O' => self.order = Some(text()),
            b's' => self.pid_file = Some(value.into()),
            b'S' => self.site = Some(text()),
            b'w' => self.wait = Some(text()),
            // `-m`: the copies at once are those of frm.xfr.copymax.
            _ => {}
        }
        Ok(())
    }

    /// Returns how the process of a daemon is started.
    fn launch(&self, program: &str) -> Result<Launch, String> {
        let full =
            |path: &Path| std::path::absolute(path).map_err(|error| format!("'{}': {error}", path.display()));
        let retention = match &self.retention {
            Some(text) => text.parse().map_err(|error| format!("-k: {error}"))?,
            None => Retention::default(),
        };
        let log = match self.log.as_deref().map(|name| name.as_encoded_bytes()) {
            None | Some(b"-") => LogTarget::Stderr,
            Some(name) => {
                let (name, exact) = name.strip_prefix(b"=").map_or((name, false), |name| (name, true));
                let path = PathBuf::from(OsString::from_vec(name.to_vec()));
                LogTarget::File { path: full(&path)?, exact, retention }
            }
        };
        let file = full(&self.config.clone().unwrap_or_else(configuration_file))?;
        Ok(Launch {
            load: ConfigInput {
                file: Some(file.to_string_lossy().into_owned()),
                evaluation: evaluation(program, self.instance.clone()),
                overrides: Overrides { site_name: self.site.clone(), ..Overrides::default() },
                strictness: Strictness::Legacy,
            },
            log,
            levels: Levels::raised(u8::from(self.debug)),
            precise: self.precise,
            user: None,
            background: self.background && std::env::var_os(RESTARTED).is_none(),
            pid_file: self.pid_file.clone(),
            traditional_files: false,
            announce: false,
        })
    }

    /// Returns the options of purges.
    fn purges(&self) -> Result<PurgeOptions, String> {
        let time = |text: &str, option| configured_time(text).map_err(|error| format!("-{option}: {error}"));
        Ok(PurgeOptions {
            interval: self.wait.as_deref().map(|text| time(text, 'w')).transpose()?,
            order: self.order.as_deref().map(order).transpose()?,
            words: self.words.clone(),
            is_test: self.is_test,
        })
    }
}

/// Parses `FREE[,HOLD]`.
fn order(text: &str) -> Result<PurgeOrder, String> {
    let (free, hold) = text.split_once(',').map_or((text, None), |(free, hold)| (free, Some(hold)));
    let invalid = || format!("-O takes free[,hold], with free as a percentage or a size, not '{text}'");
    let free = match free.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse::<u8>().ok().filter(|percent| *percent <= 100);
            PurgeFree::Percent(percent.ok_or_else(invalid)?)
        }
        None => PurgeFree::Bytes(size(free).ok_or_else(invalid)?),
    };
    let hold = hold.map(|hold| configured_time(hold).map_err(|_| invalid())).transpose()?;
    Ok(PurgeOrder { free, hold })
}

/// Parses a size with an optional unit of 1024 bytes and its powers.
fn size(text: &str) -> Option<u64> {
    let units = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
    let unit = |letter: char| units.iter().find(|(name, _)| letter.eq_ignore_ascii_case(name));
    let last = text.chars().last()?;
    let (number, shift) = match unit(last) {
        Some((_, shift)) => (text.get(..text.len() - 1)?, *shift),
        None => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Runs `frm_xfrd` with the arguments after the name.
pub(crate) fn xfrd(arguments: Vec<OsString>) -> ExitCode {
    run(XFRD, arguments, |_| Ok(FrmDaemon::Transfers))
}

/// Runs `frm_purged` with the arguments after the name.
pub(crate) fn purged(arguments: Vec<OsString>) -> ExitCode {
    run(PURGED, arguments, |options| options.purges().map(FrmDaemon::Purges))
}

fn usage(program: &str, why: Option<&str>) -> ExitCode {
    let text = if program == PURGED { PURGED_USAGE } else { USAGE };
    if let Some(why) = why {
        err().line(format_args!("{program}: {why}"));
    }
    err().lines(text.replace("PROGRAM", program));
    if why.is_some() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

fn run(
    program: &str,
    arguments: Vec<OsString>,
    daemon: impl FnOnce(&DaemonOptions) -> Result<FrmDaemon, String>,
) -> ExitCode {
    let parsed = DaemonOptions::parse(program, arguments);
    let options = match parsed {
        Ok(options) if options.wants_help => return usage(program, None),
        Ok(options) => options,
        Err(text) => return usage(program, Some(&text)),
    };
    match daemon(&options).and_then(|daemon| Ok((daemon, options.launch(program)?))) {
        Ok((daemon, launch)) => server::frm_daemon(launch, daemon, restart),
        Err(text) => usage(program, Some(&text)),
    }
}

/// Replaces this process by one with the same command line.
fn restart() -> io::Error {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    Command::new("/proc/self/exe").arg0(name).args(arguments).env(RESTARTED, "1").exec()
}

/// Runs `frm_xfragent` with the arguments after the name.
pub(crate) fn agent(arguments: Vec<OsString>) -> ExitCode {
    let options = match DaemonOptions::parse(AGENT, arguments) {
        Ok(options) if options.wants_help => return usage(AGENT, None),
        Ok(options) => options,
        Err(text) => return usage(AGENT, Some(&text)),
    };
    let opened = options.launch(AGENT).and_then(|launch| {
        let mut load = launch.load;
        load.evaluation.host = server::host_name();
        let loaded = config::load(&load, &LocalFiles);
        let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
        if errors.is_empty() { TransferAgent::open(&loaded.effective) } else { Err(errors.join("\n")) }
    });
    let mut agent = match opened {
        Ok(agent) => agent,
        Err(text) => {
            err().lines(format_args!("{AGENT}: {}\n", text.trim_end()));
            return ExitCode::from(NOT_STARTED);
        }
    };
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            // The rest of a longer line must not be taken for a request of its own.
            Ok(_) if line.len() as u64 > LINE_BYTES_MAX => {
                err().line(format_args!("{AGENT}: line too long"));
                break;
            }
            Ok(_) => agent.line(line.strip_suffix(b"\n").unwrap_or(&line), &mut Streams),
        }
    }
    err().line(format_args!("{AGENT}: Exiting; lost request connection!"));
    ExitCode::from(INPUT_ENDED)
}

/// The standard output and the standard error.
struct Streams;

impl AgentOutput for Streams {
    fn answer(&mut self, line: &str) {
        out().line(line);
    }

    fn complain(&mut self, text: &str) {
        err().line(format_args!("{AGENT}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse(program: &str, line: &str) -> Result<DaemonOptions, String> {
        DaemonOptions::parse(program, line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn the_command_lines_are_those_of_xrootd() {
        let options = parse(XFRD, "-bdz -c /etc/x -l =/log/x -k7 -n foo -s pid -S SITE -m 3").unwrap();
        let launch = options.launch(XFRD).unwrap();
        assert!(launch.background && launch.precise && !launch.announce);
        assert_eq!(launch.load.file.as_deref(), Some("/etc/x"));
        assert_eq!(
            (launch.load.evaluation.program.as_str(), launch.load.evaluation.instance.as_deref()),
            (XFRD, Some("foo"))
        );
        assert_eq!(
            launch.log,
            LogTarget::File { path: "/log/x".into(), exact: true, retention: Retention::Files(7) }
        );
        let options = parse(PURGED, "-T -w 5m -O 5%,2h public /store").unwrap();
        let purges = options.purges().unwrap();
        assert_eq!(purges.interval, Some(Duration::from_secs(300)));
        let hold = Some(Duration::from_secs(7200));
        assert_eq!(purges.order, Some(PurgeOrder { free: PurgeFree::Percent(5), hold }));
        assert!(purges.is_test && purges.words == ["public", "/store"]);
        for (program, line) in [
            (XFRD, "-O 5%"),
            (XFRD, "/store"),
            (XFRD, "-q"),
            (PURGED, "-c"),
            (XFRD, "-n a/b"),
            (PURGED, "-m 3"),
        ] {
            assert!(parse(program, line).is_err(), "{line}");
        }
        assert!(parse(XFRD, "-k x").unwrap().launch(XFRD).is_err());
    }

    #[test]
    fn an_order_is_free_space_and_a_hold_time() {
        assert_eq!(order("10g"), Ok(PurgeOrder { free: PurgeFree::Bytes(10 << 30), hold: None }));
        assert_eq!(order("4096,0").map(|order| order.hold), Ok(Some(Duration::ZERO)));
        for bad in ["", "%", "101%", "x", "5%,x", "5%,", "-1", "99999999999999999999"] {
            assert!(order(bad).is_err(), "{bad}");
        }
    }
}
