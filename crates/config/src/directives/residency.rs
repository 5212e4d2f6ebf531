//! Directives of staging, migration and purging: `frm.`, and those of `oss.` for mass storage.
//!
//! Staging, migration and purging are in force.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::purge;
use super::shared::{option_not_yet, part_without_effect};
use super::standing::UsageFrequency;
use super::transfer_monitor;
use crate::effective::{
    COPY_SLOTS_MAX, CopyProgram, CopySlots, NameSpaceDaemon, NameSpaceTarget, STAGE_PLACES_MAX, StageForm,
    StageProgram,
};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::values::{self, between};

/// Maximum time limit of a copy program, and maximum time of refusals, in seconds.
const MONTH: u64 = 30 * 86_400;

pub(super) const SECTION: Section = Section {
    title: "Mass storage: frm.",
    about: "The server stages missing files, migrates new ones and purges those with a copy itself; see \
            [staging.md](staging.md).",
    directives: &[
        Directive::new(
            &["frm.xfr.copycmd"],
            UsageFrequency::Common,
            "[in|out] [noalloc] [rmerr] [stats] [timeout time] [mdp] [url] [xpd] command arguments",
            copy_command,
        )
        .default("none: nothing is staged or migrated")
        .help(
            "Program that copies a file from mass storage (`in`, for exports with `stage`) or to it (`out`, for exports with \
               `mig`); without either word it does both. With `url` it is for remote names that are URLs. Variables in its arguments: $SRC and $DST, $LFN, $PFN, $RFN, $PRTY, $RID, $TID, $HOST, \
               $INS, $OFLAG, $MDP and $NOTIFY. Others stop the start: all clients of a file share one copy, so opaque \
               data of a request has no values for it. Status 2 of a copy from mass \
               storage means that there is no such file. `timeout` ends the program and all its processes. With `noalloc`, \
               there is no file at $DST before, so the program has to create it; otherwise there is an empty one. Partial files are always removed, and each copy is logged.",
        )
        .executes(|effective| effective.residency.has_copy_command_in() || effective.residency.has_migration_program())
        .example("in /usr/bin/stagein $SRC $DST"),
        Directive::new(&["frm.xfr.copymax"], UsageFrequency::Common, "{n | split in out}", copies_max)
            .default("2")
            .help("Maximum number of concurrent copies in each direction.")
            .example("10"),
        Directive::new(
            &["scalla.stageshare"],
            UsageFrequency::Rare,
            "[copies {n | all}] [queued n]",
            stage_share,
        )
        .default("copies all queued 2000000")
        .help(
            "Share of one client in staging. A client is an authenticated user, or a host. `copies` is the maximum number \
               of its concurrent copies, and `queued` that of files of all clients that wait. Free slots go to the clients \
               in turn. A client may have as many files in the queue as are free for others.",
        )
        .example("copies 4 queued 500000"),
        Directive::new(&["frm.xfr.qcheck"], UsageFrequency::Common, "[check time] [path]", queue_directory)
            .default("<adminpath>/frm")
            .help("Directory of the queue of transfers, on a local disk. Staging needs it or all.adminpath, because a \
                   reboot empties /tmp. Others must not be able to write to it. The time has no effect: requests are never \
                   searched for.")
            .example("/var/spool/xrootd/frm"),
        Directive::new(&["frm.xfr.migr.idlehold"], UsageFrequency::Common, "time", migration_idle)
            .default("10m")
            .help("Time for which a file must not have been changed before it is migrated.")
            .example("1h"),
        Directive::new(&["frm.xfr.migr.waittime"], UsageFrequency::Common, "time", migration_interval)
            .default("1h")
            .help("Interval between two searches for files to migrate. It is not shorter than the idle time.")
            .example("30m"),
        Directive::new(
            &["frm.purge.policy"],
            UsageFrequency::Common,
            "{*|space} {nopurge | minfree [maxfree]} [hold {time|forever}] [polprog]",
            purge::policy,
        )
        .default("* nopurge")
        .help(
            "When files of exports with `purge` are removed: a purge begins when less than `minfree` is free on a file \
               system, and ends when `maxfree` is. Both are percentages or sizes. Without `maxfree` it is 1 percent more, \
               or a fifth. A file stays for the time of `hold` after its last access, which is 20h if it is missing. \
               The policy of a space has precedence over `*`; files outside of spaces are in `public`. Without this directive \
               nothing is purged. `polprog` asks the program of frm.purge.polprog, which has to \
               come before it, for each file.",
        )
        .example("* 10% 20% hold 10h"),
        Directive::new(
            &["frm.purge.polprog"],
            UsageFrequency::Common,
            "[variables] |program [arguments]",
            purge::program,
        )
        .default("none")
        .help(
            "Program that selects the files to purge, for policies with `polprog`. It is started once, gets a line with \
               these values for each file that may go (by default sname pfn fsize atime mtime), and answers with a line: \
               y purges it, n keeps it, and anything else ends the purge, as do its end and no answer within 60 s.",
        )
        .executes(|effective| effective.residency.purge_program.is_some())
        .example("pfn fsize |/usr/bin/polprog"),
        Directive::new(&["frm.purge.dirhold"], UsageFrequency::Common, "{time | forever}", purge::directories)
            .default("forever")
            .help("Time for which an empty directory of an export with `purge` is kept. A purge removes older ones, \
                   except exports themselves.")
            .example("40h"),
        Directive::new(&["frm.purge.waittime"], UsageFrequency::Common, "time", purge::interval)
            .default("600s")
            .help("Interval between two purges.")
            .example("10m"),
        Directive::new(
            &["frm.all.cnsd"],
            UsageFrequency::Common,
            "{auto|ignore|require} [apath path]",
            name_space_daemon,
        )
        .default("ignore")
        .help(
            "Events for XRootD's name space daemon: a line in its pipe `cns/XrdCnsd.events` for each file that came from mass storage \
               or was purged. The pipe is below all.adminpath, or else `apath`. With `auto`, events are lost while nobody reads the \
               pipe. With `require`, up to 10,000 wait for the daemon, and are lost at the end of the server.",
        )
        .example("ignore"),
        Directive::new(
            &["frm.all.monitor"],
            UsageFrequency::Common,
            "[ident time] dest [migr] [purge] [stage] host:port [dest [migr] [purge] [stage] host:port]",
            transfer_monitor::records,
        )
        .default("none: nothing is sent")
        .help(
            "Collectors of records about transfers and purges. Each copy from mass storage (`stage`) or to it (`migr`) that \
               ends, also with a failure, and each purged file (`purge`) is a datagram. `ident` is the interval in which \
               the server identifies itself; the default is 1h. See [monitoring.md](monitoring.md).",
        )
        .example("ident 10m dest stage migr purge collector.example.org:9930"),
    ],
};

/// Reads the options of `frm.xfr.copycmd`, which begin before the path of the program.
fn copy_command(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let (mut is_in, mut is_out, mut is_url, mut timeout) = (false, false, false, None);
    let mut creates_file = false;
    let mut token = arguments.need("copycmd command")?;
    while !token.text.starts_with('/') {
        match token.text.as_str() {
            "in" => is_in = true,
            "out" => is_out = true,
            "url" => is_url = true,
            "timeout" => timeout = Some(arguments.time("copycmd timeout", between(1, MONTH))?),
            "noalloc" => creates_file = true,
            "rmerr" => part_without_effect(arguments, token, "a partial file is always removed", draft),
            "stats" => part_without_effect(arguments, token, "each copy is logged", draft),
            "mdp" | "xpd" => part_without_effect(arguments, token, "the program makes directories", draft),
            _ => return Err(arguments.invalid(token, "copycmd option or path")),
        }
        token = arguments.need("copycmd command")?;
    }
    let command = program(token, arguments, "copycmd")?;
    let program = StageProgram { command, timeout, creates_file };
    let residency = &mut draft.effective.residency;
    if is_in || !is_out {
        let setting = if is_url { &mut residency.from_url } else { &mut residency.from_path };
        setting.set(Some(program.clone()), arguments.origin());
    }
    if is_out || !is_in {
        let setting = if is_url { &mut residency.to_url } else { &mut residency.to_path };
        setting.set(Some(program), arguments.origin());
    }
    Ok(())
}

fn migration_idle(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let time = arguments.time("idlehold", between(0, MONTH))?;
    draft.finish(arguments);
    draft.effective.residency.migration_idle.set(time, arguments.origin());
    Ok(())
}

fn migration_interval(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let time = arguments.time("waittime", between(1, MONTH))?;
    draft.finish(arguments);
    draft.effective.residency.migration_interval.set(time, arguments.origin());
    Ok(())
}

fn program(
    path: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    what: &str,
) -> Result<CopyProgram, DirectiveFault> {
    let path = values::path(path, what)?.into();
    let mut rest = Vec::new();
    while let Some(token) = arguments.next() {
        rest.push(token.text.clone());
    }
    Ok(CopyProgram { path, arguments: rest })
}

fn copies_max(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let slots = match arguments.take("split") {
        Some(_) => CopySlots {
            inward: arguments.count("copymax in", 1, COPY_SLOTS_MAX)?,
            outward: arguments.count("copymax out", 1, COPY_SLOTS_MAX)?,
        },
        None => {
            let number = arguments.count("copymax", 1, COPY_SLOTS_MAX)?;
            CopySlots { inward: number, outward: number }
        }
    };
    draft.finish(arguments);
    draft.effective.residency.slots.set(slots, arguments.origin());
    Ok(())
}

fn stage_share(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut share = *draft.effective.residency.share;
    let mut token = arguments.need("stageshare option")?;
    loop {
        match token.text.as_str() {
            "copies" if arguments.take("all").is_some() => share.copies = None,
            "copies" => share.copies = Some(arguments.count("stageshare copies", 1, COPY_SLOTS_MAX)?),
            "queued" => share.places = arguments.count("stageshare queued", 1, STAGE_PLACES_MAX)?,
            _ => return Err(arguments.invalid(token, "stageshare option")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.residency.share.set(share, arguments.origin());
    Ok(())
}

fn queue_directory(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if arguments.peek().is_some_and(|text| !text.starts_with('/'))
        && let Some(token) = arguments.next()
    {
        values::time(token, "qcheck time", between(0, MONTH))?;
        part_without_effect(arguments, token, "requests are never searched for", draft);
    }
    if arguments.peek().is_some() {
        let path = arguments.path("qcheck")?.into();
        draft.finish(arguments);
        draft.effective.residency.directory.set(Some(path), arguments.origin());
    }
    Ok(())
}

/// Reads `oss.remoteroot`: an absolute path, or a URL.
pub(super) fn remote_root(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("remoteroot path")?;
    let root =
        if token.text.contains("://") { token.text.clone() } else { values::path(token, "remoteroot")? };
    draft.finish(arguments);
    draft.effective.residency.remote_root.set(Some(root), arguments.origin());
    Ok(())
}

/// Reads `oss.rsscmd` and `oss.msscmd`.
pub(super) fn catalog(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("program")?;
    let behind = token.text.strip_prefix('|');
    let reads_lines = behind.is_some();
    let program = match behind {
        // `| /path`
        Some("") => program(arguments.need("program")?, arguments, "program")?,
        Some(path) => {
            program(&DirectiveToken { text: path.to_owned(), ..token.clone() }, arguments, "program")?
        }
        None => program(token, arguments, "program")?,
    };
    draft.effective.residency.catalog_reads_lines = reads_lines;
    draft.effective.residency.catalog.set(Some(program), arguments.origin());
    Ok(())
}

/// What `oss.stagecmd` accepts.
const STAGE_COMMANDS: &str = "allowed: a program that is run for each file, 'oss.stagecmd PROGRAM ARGUMENTS' or \
    'frm.xfr.copycmd in PROGRAM $SRC $DST', or one that reads lines (oss.stagemsg) and reports the end of each file, \
    'oss.stagecmd async |PROGRAM ARGUMENTS', or does not, 'oss.stagecmd |PROGRAM ARGUMENTS' with oss.rsscmd";

/// Reads `oss.stagecmd`. A program that reads lines (`|`) reports the ends of files (`async`), or the server compares them
/// with their checksums. XRootD's agents in that place put requests into a queue, and this server has its own.
pub(super) fn stage_command(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    // Each one replaces an earlier one.
    draft.effective.residency.stage_program.set(None, arguments.origin());
    draft.effective.residency.stage_form = StageForm::PerFile;
    draft.effective.residency.stage_creates = false;
    let refused = |token: &DirectiveToken, why: &str| {
        let what = format!("stagecmd: '{}' is not possible: {why}", token.text);
        Err(DirectiveFault::at(token, what, STAGE_COMMANDS).of(ProblemKind::Unsupported))
    };
    let (mut reports, mut creates) = (None, false);
    let mut token = arguments.need("stagecmd command")?;
    loop {
        match token.text.as_str() {
            "sync" => reports = None,
            "async" => reports = Some(token),
            "creates" => creates = true,
            _ => break,
        }
        token = arguments.need("stagecmd command")?;
    }
    let Some(path) = token.text.strip_prefix('|') else {
        if let Some(token) = reports {
            return refused(token, "clients wait for the end of a program that is run for each file");
        }
        let program = program(token, arguments, "stagecmd")?;
        draft.effective.residency.stage_creates = creates;
        draft.effective.residency.stage_program.set(Some(program), arguments.origin());
        return Ok(());
    };
    let place = if path.is_empty() { arguments.need("stagecmd command")? } else { token };
    let path = place.text.trim_start_matches('|');
    if path.rsplit('/').next().is_some_and(|name| name.starts_with("frm_")) {
        draft.effective.residency.stage_creates = creates;
        part_without_effect(arguments, token, "this server queues the requests itself", draft);
        while arguments.next().is_some() {}
        return Ok(());
    }
    let place = DirectiveToken { text: path.to_owned(), ..place.clone() };
    let program = program(&place, arguments, "stagecmd")?;
    draft.effective.residency.stage_form =
        if reports.is_some() { StageForm::Reporting } else { StageForm::Silent };
    draft.effective.residency.stage_creates = creates;
    draft.effective.residency.stage_program.set(Some(program), arguments.origin());
    Ok(())
}

/// Reads `frm.all.cnsd`.
fn name_space_daemon(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("cnsd option")?;
    let daemon = match token.text.as_str() {
        "auto" => NameSpaceDaemon::Optional,
        "ignore" => NameSpaceDaemon::Ignored,
        "require" => NameSpaceDaemon::Required,
        _ => return Err(arguments.invalid(token, "cnsd option")),
    };
    let mut directory = None;
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "apath" => directory = Some(arguments.path("cnsd apath")?.into()),
            _ => return Err(arguments.invalid(token, "cnsd option")),
        }
    }
    let value = NameSpaceTarget { daemon, directory };
    draft.effective.residency.name_space.set(value, arguments.origin());
    Ok(())
}

/// Reads `xrootd.prep`.
pub(super) fn prepare_records(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("prep option")?;
    loop {
        match token.text.as_str() {
            "keep" => {
                let keep = arguments.time("prep keep", between(0, MONTH))?;
                draft.effective.residency.prepare_keep.set(keep, arguments.origin());
            }
            "scrub" => {
                arguments.time("prep scrub", between(0, MONTH))?;
                part_without_effect(arguments, token, "records end with their time", draft);
            }
            "logdir" => {
                arguments.path("prep logdir")?;
                part_without_effect(arguments, token, "the requests are in the queue of transfers", draft);
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// Reads `oss.stagemsg`: all that follows is the line.
pub(super) fn stage_message(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let first = arguments.need("stagemsg text")?;
    let mut words = vec![first.text.clone()];
    while let Some(token) = arguments.next() {
        words.push(token.text.clone());
    }
    draft.effective.residency.stage_message.set(Some(words.join(" ")), arguments.origin());
    Ok(())
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads `oss.xfr`.
pub(super) fn limits(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("xfr option")?;
    loop {
        match token.text.as_str() {
            "deny" => {
                let deny = arguments.time("xfr deny", between(0, MONTH))?;
                draft.effective.residency.deny.set(deny, arguments.origin());
            }
            "keep" => {
                arguments.time("xfr keep", between(0, MONTH))?;
                part_without_effect(arguments, token, "results are not kept apart from the queue", draft);
            }
            "up" => option_not_yet(arguments, token, draft),
            "fdir" => {
                arguments.path("xfr fdir")?;
                part_without_effect(arguments, token, "failures are kept in the queue", draft);
            }
            text if is_number(text) => {
                let threads = values::count32(token, "xfr threads", 1, COPY_SLOTS_MAX)?;
                draft.effective.residency.stage_threads.set(Some(threads), arguments.origin());
                while arguments.peek().is_some_and(is_number)
                    && let Some(token) = arguments.next()
                {
                    let why = "speed and overhead estimate times, which clients do not need";
                    part_without_effect(arguments, token, why, draft);
                }
            }
            _ => return Err(arguments.invalid(token, "xfr option")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}
