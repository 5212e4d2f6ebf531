//! Directives of nodes: `cms.allow`, `cms.blacklist`, `cms.space`, `cms.perf`, `cms.dfs`,
//! `cms.fsxeq`, ids of nodes, `ofs.forward`.
//!
//! The table of their names is in `directives/cluster.rs`.

use crate::directives::arguments::Arguments;
use crate::directives::draft::Draft;
use crate::directives::fault::DirectiveFault;
use crate::directives::libraries::{self, LibraryPurpose};
use crate::directives::shared::{part_without_effect, trace, unprotected};
use crate::effective::{
    CLUSTER_TAG_MAX, ForwardWay, Forwarding, FreeSpace, HostPattern, LoadProgramSetting, NodeList,
    OperationCommand, Port, SharedFilesConfig, VIRTUAL_ID_MAX,
};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::setting::{Position, Setting};
use crate::values::{self, TIME_MAX, ValueRange, between};

use std::time::Duration;

/// Options of `cms.trace`.
const TRACE: &[&str] = &["debug", "defer", "files", "forward", "redirect", "space", "stage"];

/// Operations that a program may execute (`cms.fsxeq`).
const OPERATIONS: [&str; 7] = ["chmod", "mkdir", "mkpath", "mv", "rm", "rmdir", "trunc"];

/// Minimum interval between two measurements of space, in seconds.
const RECALCULATE_MIN: u64 = 5;

/// Range of free space, because parents receive it in MB as a 32-bit number.
const FREE_SPACE: ValueRange = between(1, (u32::MAX as u64) << 20);

/// `all.seclib`.
pub(crate) fn security_library(
    arguments: &mut Arguments<'_>,
    _draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let instead = "use scalla.clusterkey, by which the nodes prove a common key";
    Err(unprotected(arguments.name, "").instead(instead))
}

pub(crate) fn allow(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let pattern = host_pattern(arguments)?;
    draft.finish(arguments);
    draft.effective.cluster.allow.push(Setting::new(pattern, arguments.origin()));
    Ok(())
}

/// `{host|netgroup} name`.
pub(crate) fn host_pattern(arguments: &mut Arguments<'_>) -> Result<HostPattern, DirectiveFault> {
    let kind = arguments.need("allow type")?;
    match kind.text.as_str() {
        "host" => {}
        "netgroup" => {
            return Err(
                unprotected(kind, "'netgroup'").instead("name the hosts: host NAME, with * for any text")
            );
        }
        _ => return Err(arguments.invalid(kind, "allow type")),
    }
    let token = arguments.need("allow target name")?;
    HostPattern::parse(&token.text).ok_or_else(|| {
        DirectiveFault::at(
            token,
            format!("invalid host pattern '{}'", token.text),
            "allowed: at most one '*'",
        )
    })
}

pub(crate) fn blacklist(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    node_list(arguments, draft, false)
}

pub(crate) fn whitelist(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    node_list(arguments, draft, true)
}

/// `[check time] [path]`.
fn node_list(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
    white: bool,
) -> Result<(), DirectiveFault> {
    let mut list = NodeList { white, path: None, check: Duration::from_secs(600) };
    if arguments.take("check").is_some() {
        list.check = arguments.time("check", between(1, TIME_MAX))?;
    }
    if arguments.peek().is_some() {
        list.path = Some(arguments.path(if white { "whitelist" } else { "blacklist" })?.into());
    }
    draft.finish(arguments);
    if let Some(before) = &draft.effective.cluster.node_list.value
        && before.white != white
    {
        let what = "a blacklist and a whitelist are both set; the last one applies".to_owned();
        draft.note(ProblemKind::Doubtful, arguments.name, what, "keep one of them");
    }
    draft.effective.cluster.node_list.set(Some(list), arguments.origin());
    Ok(())
}

pub(crate) fn space(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut token = arguments.need("space option")?;
    loop {
        match token.text.as_str() {
            "linger" => {
                let value = arguments.count("space linger", 0, 1_000_000)?;
                draft.effective.cluster.space.linger.set(value, origin.clone());
            }
            "recalc" => {
                let value = arguments.time("space recalc", between(1, TIME_MAX))?;
                let value = value.max(Duration::from_secs(RECALCULATE_MIN));
                draft.effective.cluster.space.recalculate.set(value, origin.clone());
            }
            "mwfiles" => draft.effective.cluster.space.copies.set(true, origin.clone()),
            "min" => {
                let first = arguments.need("space min value")?;
                limits(first, arguments, draft)?;
            }
            text if text.starts_with(|c: char| c.is_ascii_digit()) => limits(token, arguments, draft)?,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// `[p%] size [[p%] size]`: the minimum and the recovery limit. The default of the second is 1 GB
/// more than the first.
fn limits(
    first: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let least = limit(first, arguments, "space min")?;
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let enough = match arguments.peek().filter(|text| is_number(text)) {
        Some(_) => {
            let token = arguments.need("space value")?;
            limit(token, arguments, "space hwm")?
        }
        None => FreeSpace { bytes: least.bytes.saturating_add(1 << 30), ..least },
    };
    if enough.bytes < least.bytes || enough.percent < least.percent {
        let what = format!("{}: the second limit is below the first", arguments.name.text);
        draft.note(ProblemKind::Doubtful, first, what, "set the second limit at least as high as the first");
    }
    let origin = arguments.origin();
    draft.effective.cluster.space.least.set(least, origin.clone());
    draft.effective.cluster.space.enough.set(enough, origin);
    Ok(())
}

impl std::str::FromStr for FreeSpace {
    type Err = String;

    /// Parses a size from a command line.
    fn from_str(text: &str) -> Result<Self, String> {
        let position = Position { file: "command line".into(), line: 0, column: 0 };
        let token = DirectiveToken { text: text.to_owned(), position };
        let bytes = values::size(&token, "free space", FREE_SPACE);
        let bytes = bytes.map_err(|fault| format!("{}; {}", fault.what, fault.allowed))?;
        Ok(Self { percent: 0, bytes })
    }
}

fn limit(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    what: &str,
) -> Result<FreeSpace, DirectiveFault> {
    if token.text.ends_with('%') {
        let percent = values::percent(token, what)?;
        let absolute = arguments.next().filter(|token| !token.text.ends_with('%'));
        let absolute = absolute.ok_or_else(|| {
            DirectiveFault::at(
                token,
                format!("absolute {what} value not specified"),
                format!("allowed: {}", arguments.grammar),
            )
        })?;
        return Ok(FreeSpace { percent, bytes: values::size(absolute, what, FREE_SPACE)? });
    }
    Ok(FreeSpace { percent: 0, bytes: values::size(token, what, FREE_SPACE)? })
}

/// `[int time] [xrootd] {lib path [parameters]|pgm program [arguments]}`.
pub(crate) fn perf(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut token = arguments.need("perf option")?;
    loop {
        match token.text.as_str() {
            "int" => {
                let value = arguments.time("perf int", between(1, TIME_MAX))?;
                draft.effective.cluster.load_interval.set(value, origin.clone());
            }
            // xrootd and cmsd are one process here.
            "xrootd" => {}
            "pgm" => {
                let program = program(arguments, "perf program")?;
                draft.effective.cluster.load_source.set(LoadProgramSetting::Program(program), origin);
                return Ok(());
            }
            "lib" => {
                let library = libraries::library(arguments)?;
                return libraries::select(arguments, library, LibraryPurpose::Monitoring, draft);
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// Reads a program and its arguments, which are all remaining words.
fn program(arguments: &mut Arguments<'_>, what: &str) -> Result<Vec<String>, DirectiveFault> {
    let first = arguments.need(what)?;
    if !first.text.starts_with('/') {
        return Err(DirectiveFault::at(
            first,
            format!("{what} {} is not an absolute path", first.text),
            "allowed: /path",
        ));
    }
    let mut words = vec![first.text.clone()];
    while let Some(next) = arguments.next() {
        words.push(next.text.clone());
    }
    Ok(words)
}

pub(crate) fn shared_files(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut value = SharedFilesConfig::default();
    let mut token = arguments.need("dfs option")?;
    loop {
        match token.text.as_str() {
            "lookup" => {
                value.central = choice(arguments, "dfs lookup", ["distrib", "central"])?;
            }
            "redirect" => {
                value.unchecked = choice(arguments, "dfs redirect", ["verify", "immed"])?;
                value.verified = !value.unchecked;
            }
            "limit" => {
                value.rate_central = arguments.take("central").is_some();
                let number = arguments.need("dfs limit value")?;
                let text = number.text.strip_prefix('=');
                value.rate_even = text.is_some();
                let text = text.unwrap_or(&number.text).to_owned();
                let number = DirectiveToken { text, position: number.position.clone() };
                value.rate_max = values::count32(&number, "dfs limit", 0, 1_000_000)?;
            }
            "mdhold" => {
                value.missing_hold = arguments.time("dfs mdhold", between(1, TIME_MAX))?;
            }
            "qmax" => value.queue_max = arguments.count("dfs qmax", 1, 1_000_000)?,
            "retries" => value.retries = arguments.count("dfs retries", 1, 1000)?,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.cluster.shared.set(Some(value), arguments.origin());
    Ok(())
}

/// Reads one of two words. Reports whether it is the second.
fn choice(arguments: &mut Arguments<'_>, what: &str, words: [&str; 2]) -> Result<bool, DirectiveFault> {
    let token = arguments.need(&format!("{what} value"))?;
    match words.iter().position(|word| *word == token.text) {
        Some(index) => Ok(index == 1),
        None => Err(arguments.invalid(token, what)),
    }
}

/// `operation… program [arguments]`.
pub(crate) fn operations(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut operations = Vec::new();
    while let Some(operation) = OPERATIONS.into_iter().find(|name| arguments.peek() == Some(name)) {
        arguments.next();
        operations.push(operation);
    }
    let program =
        program(arguments, if operations.is_empty() { "fsxeq operation" } else { "fsxeq program" })?;
    if operations.is_empty() {
        let what = "fsxeq operation not specified".to_owned();
        return Err(DirectiveFault::at(arguments.name, what, format!("allowed: {}", arguments.grammar)));
    }
    let value = OperationCommand { operations, program };
    draft.effective.cluster.programs.push(Setting::new(value, arguments.origin()));
    Ok(())
}

pub(crate) fn tag(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("tag")?;
    if token.text.chars().count() > CLUSTER_TAG_MAX {
        let what = format!("tag is > {CLUSTER_TAG_MAX} characters");
        return Err(DirectiveFault::at(token, what, format!("allowed: 1 to {CLUSTER_TAG_MAX} characters")));
    }
    draft.finish(arguments);
    draft.effective.cluster.tag.set(Some(token.text.clone()), arguments.origin());
    Ok(())
}

/// `{=id|<file|@library [parameters]}`.
pub(crate) fn virtual_id(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    const FORM: &str = "allowed: =id, <file with the id";
    let token = arguments.need("vnid value")?;
    let id = match token.text.split_at_checked(1) {
        Some(("=", id)) => id.to_owned(),
        Some(("<", path)) => {
            let content = draft.source.read(path).map_err(|error| {
                DirectiveFault::at(token, format!("vnid file {path} cannot be read: {error}"), FORM)
            })?;
            String::from_utf8_lossy(&content).lines().next().unwrap_or_default().trim().to_owned()
        }
        Some(("@", _)) => {
            let what = format!("unsupported library '{}'", token.text);
            let instead = "use =id or <file, or omit it to use an id kept in the admin directory";
            return Err(DirectiveFault::at(token, what, instead).of(ProblemKind::ForeignLibrary));
        }
        _ => return Err(DirectiveFault::at(token, format!("invalid vnid '{}'", token.text), FORM)),
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '&';
    if id.is_empty() || id.chars().count() > VIRTUAL_ID_MAX || id.contains(odd) {
        let allowed = format!("allowed: 1 to {VIRTUAL_ID_MAX} characters, no blank and no '&'");
        return Err(DirectiveFault::at(token, format!("vnid '{id}' is invalid"), allowed));
    }
    draft.finish(arguments);
    draft.effective.cluster.virtual_id.set(Some(id), arguments.origin());
    Ok(())
}

pub(crate) fn supervisor_port(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("tcp port")?;
    let port = match token.text.as_str() {
        "any" => Port::Any,
        text => match values::port(token, text, 0, draft.source)? {
            0 => Port::Any,
            number => Port::Number(number),
        },
    };
    draft.finish(arguments);
    draft.effective.cluster.supervisor_port.set(port, arguments.origin());
    Ok(())
}

pub(crate) fn mode(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.rest().first();
    if choice(arguments, "mode", ["r/w", "r/o"])?
        && let Some(token) = token
    {
        return Err(unprotected(token, "'r/o'"));
    }
    draft.finish(arguments);
    Ok(())
}

pub(crate) fn cms_trace(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = trace(arguments, TRACE, draft)?;
    draft.effective.cluster.trace.set(value, arguments.origin());
    Ok(())
}

/// `ofs.forward [1way|2way|3way {local|host:port}] operation…|all|off`.
pub(crate) fn forward(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut way = ForwardWay::OneWay;
    let mut token = arguments.need("forward operation")?;
    match token.text.as_str() {
        "1way" => token = arguments.need("forward operation")?,
        "2way" => {
            way = ForwardWay::TwoWay;
            token = arguments.need("forward operation")?;
        }
        "3way" => {
            // The operation is forwarded like `1way`.
            let why = "the third host kept a name list for programs that no longer exist; all servers execute the change";
            part_without_effect(arguments, token, why, draft);
            arguments.need("forward host")?;
            token = arguments.need("forward operation")?;
        }
        _ => {}
    }
    let mut value = *draft.effective.cluster.forwarding;
    loop {
        let (name, way) = match token.text.strip_prefix('-') {
            Some(name) => (name, ForwardWay::Off),
            None => (token.text.as_str(), way),
        };
        match name {
            "off" => value = Forwarding::default(),
            "all" => {
                value = Forwarding { chmod: way, mkdir: way, mv: way, rm: way, rmdir: way, trunc: way };
            }
            "chmod" => value.chmod = way,
            "mkdir" => value.mkdir = way,
            "mv" => value.mv = way,
            "rm" => value.rm = way,
            "rmdir" => value.rmdir = way,
            "remove" => (value.rm, value.rmdir) = (way, way),
            "trunc" => value.trunc = way,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.cluster.forwarding.set(value, arguments.origin());
    Ok(())
}
