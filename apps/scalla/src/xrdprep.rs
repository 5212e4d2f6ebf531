//! The program `xrdprep`: prepares files, cancels a prepare request, or queries its state.

use crate::environment;
use crate::printer::{err, out};
use crate::xrootd_compat::options::{self, OptionSpec};
use crate::xrootd_compat::{self, CommandRuntime, XrdClStatus};
use client::Url;
use client::xroot::flags::PrepareOptions;
use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: xrdprep [opts1] [prepare] host[:port] [path [...]]

       xrdprep [opts2] {cancel | query} host[:port] handle [path [...]]

Opts1: [-E] [-p prty] [-s] [-S] [-w] [opts2]

Opts2: [-d n] [-f fn]

-d   detail of messages, 0 to 3.
-E   the files are no longer needed on disk.
-f   a file with further paths, one in a line.
-p   priority, 0 (lowest) to 3.
-s   bring the files to disk.
-S   bring the files to disk, all to the same place if possible.
-w   the files will be written.
";

const OPTIONS: [OptionSpec; 8] = [
    OptionSpec::valued(Some('d'), "debug"),
    OptionSpec::switch(Some('E'), "evict"),
    OptionSpec::valued(Some('f'), "file"),
    OptionSpec::switch(Some('h'), "help"),
    OptionSpec::valued(Some('p'), "prty"),
    OptionSpec::switch(Some('s'), "stage"),
    OptionSpec::switch(Some('S'), "sequence"),
    OptionSpec::switch(Some('w'), "write"),
];

/// The highest priority, and the highest log level.
const LEVEL_MAX: i64 = 3;

/// The action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum XrdprepTask {
    Prepare,
    Cancel,
    Query,
}

/// A parsed command line.
#[derive(Debug)]
struct XrdprepRequest {
    task: XrdprepTask,
    url: Url,
    /// The handle of the request to be cancelled or queried.
    handle: String,
    paths: Vec<String>,
    options: PrepareOptions,
    priority: u8,
    evict: bool,
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let order = match parse_request(&xrootd_compat::words(arguments)) {
        Ok(Some(order)) => order,
        Ok(None) => {
            out().literal(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            err().line(format_args!("xrdprep: {why}"));
            err().literal(USAGE);
            return ExitCode::FAILURE;
        }
    };
    match send_request(&order) {
        Ok(answer) => {
            if !answer.is_empty() {
                out().lines(format_args!("{}\n", answer.trim_end_matches('\n')));
            }
            ExitCode::SUCCESS
        }
        Err(status) => {
            err().line(format_args!("xrdprep: {}", status.to_string().trim_end()));
            ExitCode::FAILURE
        }
    }
}

/// Parses a command line. Returns `None` if it requests the help.
fn parse_request(words: &[String]) -> Result<Option<XrdprepRequest>, String> {
    let parsed = options::parse(words, &OPTIONS).map_err(|wrong| wrong.to_string())?;
    let (mut options, mut priority, mut evict, mut more) = (PrepareOptions::NONE, 0, false, Vec::new());
    let level = |value: &str| {
        let level = value.parse().ok().filter(|level| (0..=LEVEL_MAX).contains(level));
        level.and_then(|level| u8::try_from(level).ok()).ok_or(format!("'{value}' is not 0 to {LEVEL_MAX}."))
    };
    for (name, value) in parsed.options {
        match name {
            "help" => return Ok(None),
            "debug" => drop(level(&value)?),
            "evict" => evict = true,
            "file" => {
                let text = std::fs::read_to_string(&value).map_err(|error| {
                    format!("Unable to open {value}; {}", xrootd_compat::format::system(&error))
                })?;
                more.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            }
            "prty" => priority = level(&value)?,
            "stage" => options |= PrepareOptions::STAGE,
            "sequence" => options |= PrepareOptions::STAGE | PrepareOptions::COLOC,
            _ => options |= PrepareOptions::WMODE,
        }
    }
    let mut words = parsed.words.into_iter().peekable();
    let task = match words.peek().map(String::as_str) {
        Some("prepare") => Some(XrdprepTask::Prepare),
        Some("cancel") => Some(XrdprepTask::Cancel),
        Some("query") => Some(XrdprepTask::Query),
        _ => None,
    };
    if task.is_some() {
        words.next();
    }
    let task = task.unwrap_or(XrdprepTask::Prepare);
    let host = words.next().ok_or("Host not specified.")?;
    let url =
        Url::parse(&format!("root://{host}")).map_err(|error| format!("Invalid host, '{host}'; {error}"))?;
    let handle = match task {
        XrdprepTask::Prepare => String::new(),
        _ => words.next().ok_or("Request handle not specified.")?,
    };
    let paths: Vec<String> = words.chain(more).collect();
    if task == XrdprepTask::Prepare && paths.is_empty() {
        return Err("No paths specified.".to_owned());
    }
    Ok(Some(XrdprepRequest { task, url, handle, paths, options, priority, evict }))
}

/// Sends the request and returns the server's reply.
fn send_request(order: &XrdprepRequest) -> Result<String, XrdClStatus> {
    let runtime = CommandRuntime::new()?;
    let fs = environment::client("xrdprep").file_system(&order.url);
    let paths: Vec<&str> = order.paths.iter().map(String::as_str).collect();
    let answer = runtime.wait(async {
        match order.task {
            XrdprepTask::Prepare if order.evict => fs.evict(&paths).await.map(|()| String::new()),
            XrdprepTask::Prepare => fs.prepare(&paths, order.options, order.priority).await,
            XrdprepTask::Cancel => fs.cancel(&order.handle).await.map(|()| String::new()),
            XrdprepTask::Query => fs.prepare_status(&order.handle, &paths).await,
        }
    });
    answer.map_err(XrdClStatus::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<XrdprepRequest>, String> {
        parse_request(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn tasks_and_their_words() {
        let Ok(Some(order)) = parse("-s -w -p 2 h:1 /a /b") else { panic!() };
        assert_eq!((order.task, order.priority, order.paths.len()), (XrdprepTask::Prepare, 2, 2));
        assert_eq!(order.options, PrepareOptions::STAGE | PrepareOptions::WMODE);
        let Ok(Some(order)) = parse("cancel h ID /a") else { panic!() };
        assert_eq!((order.task, order.handle.as_str(), order.paths.len()), (XrdprepTask::Cancel, "ID", 1));
        assert!(matches!(parse("query h ID"), Ok(Some(XrdprepRequest { task: XrdprepTask::Query, .. }))));
        assert!(matches!(parse("-h"), Ok(None)));
    }

    #[test]
    fn what_makes_no_sense() {
        let table = [
            ("", "Host not specified."),
            ("prepare h", "No paths specified."),
            ("query h", "Request handle not specified."),
            ("-p 4 h /a", "'4' is not 0 to 3."),
            ("-q h /a", "Invalid option, '-q'."),
            ("-f /no/such/list h", "Unable to open /no/such/list; no such file or directory"),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line).err().as_deref(), Some(expected), "{line}");
        }
    }
}
