//! Directives of the process: `all.`, and `scalla.`, which only this server knows.
//!
//! Roles and managers are in the table here, but their functions are in `cluster`.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::directory;
use super::standing::UsageFrequency;
use super::{cluster, export};
use crate::effective::{self, LogFormat, SITE_NAME_MAX};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::values::{between, from};

/// Minimum memory in bytes: a few sessions at their limit.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

pub(super) const SECTION: Section = Section {
    title: "Process: all., scalla.",
    about: "Directories, names and exports. `scalla.` directives are specific to this server; all others are \
        shared with XRootD.",
    directives: &[
        Directive::new(&["all.export"], UsageFrequency::Most, "path [options]", export::export)
            .default("/tmp, if nothing is exported at all")
            .help(
                "A served prefix of the name space, with its attributes (see Export options). \
                   Repeatable; a repeated path adds options.",
            )
            .example("/data r/w nolock"),
        Directive::new(&["all.adminpath", "xrd.adminpath"], UsageFrequency::Most, "path [group]", admin_path)
            .default("/tmp")
            .help(
                "Directory of sockets and state; created with mode 0700, or 0770 with `group`. An \
                   instance uses its own directory `path/NAME` in it.",
            )
            .example("/var/spool/xrootd"),
        Directive::new(&["all.pidpath", "xrd.pidpath"], UsageFrequency::Common, "path", pid_path)
            .default("/tmp")
            .help("Directory of pid and environment files: `path/[instance/]program.pid`.")
            .example("/run/xrootd"),
        Directive::new(&["all.sitename", "xrd.sitename"], UsageFrequency::Common, "name", site_name)
            .default("none")
            .help(
                "Name of the site, at most 63 characters, reported in monitoring and by `query config \
                   sitename`. It is also the site of macaroons, unless `macaroons.sitename` is set.",
            )
            .example("CERN-PROD"),
        Directive::new(
            &["all.role", "ofs.role", "cms.role"],
            UsageFrequency::Most,
            "{server | [meta] manager | supervisor | proxy {manager|server|supervisor}} [if]",
            cluster::role,
        )
        .default("server")
        .help(
            "Role in a cluster. A server without a manager is standalone. `proxy`: a cluster of proxies, each of \
               which serves all files; see [proxy.md](proxy.md#several-proxies).",
        )
        .example("server"),
        Directive::new(
            &["all.manager", "cms.manager"],
            UsageFrequency::Most,
            "[meta|peer|proxy] [all|any] host[+]{:port| port}[%instance][@site] [if]",
            cluster::manager,
        )
        .default("none")
        .help(
            "Manager to log in to. On a manager, its own entry has the port where nodes log in. `+`: \
               each address of the name is a manager. Several lines are redundant managers, or one tree \
               for each `@site`. `meta`: the parents of managers. `proxy`: those of the nodes of a cluster of proxies, \
               which ignore the others.",
        )
        .example("redirector.example.org:1213"),
        Directive::new(
            &["all.subcluster", "cms.subcluster"],
            UsageFrequency::Rare,
            "[of] host[+]{:port| port}",
            cluster::subcluster,
        )
        .default("none")
        .help("The cluster of this manager is part of the cluster of another manager.")
        .example("of redirector.example.org:1213"),
        Directive::idle(&["all.trace"], UsageFrequency::Rare, "[option]…")
            .default("none")
            .help(
                "Not used by XRootD either: `xrd.trace`, `xrootd.trace`, `ofs.trace`, `oss.trace` and \
                   `cms.trace` set log levels.",
            )
            .example("debug"),
        Directive::new(&["scalla.drain"], UsageFrequency::Common, "time", drain)
            .default("30s")
            .help(
                "Maximum time for operations in flight after SIGTERM; the remaining connections are \
                   closed afterwards. 0 closes immediately; at most one day.",
            )
            .example("2m"),
        Directive::new(&["scalla.logformat"], UsageFrequency::Common, "{text|json}", log_format)
            .default("text")
            .help("Format of log lines: human-readable text, or one JSON object per line.")
            .example("json"),
        Directive::new(&["scalla.iouring"], UsageFrequency::Rare, "{on|off}", io_uring)
            .default("on")
            .help(
                "Uses io_uring for reads that wait for a disk, and for batches of system calls of many \
                   connections, where the kernel allows it.",
            )
            .example("off"),
        Directive::new(&["scalla.polling"], UsageFrequency::Rare, "{on|off}", polling)
            .default("off")
            .help(
                "While few connections are active, polls for the next request for about 50 \
                   microseconds before sleeping. Lower latency for one client at the cost of processor \
                   time.",
            )
            .example("on"),
        Directive::new(&["scalla.inventory"], UsageFrequency::Rare, "{partial|complete}", inventory)
            .default("partial")
            .help(
                "Meaning of the file list that a data server sends to each new manager of scalla. \
                   `complete`: files and directories of the exports are created and moved only through \
                   this server, so the manager answers read requests for names that are not in the list \
                   without querying the server. `partial`: the server is queried once for each name, so \
                   files that other programs put on its disks are found.",
            )
            .example("complete"),
        Directive::new(&["scalla.memory"], UsageFrequency::Rare, "size", memory)
            .default("a quarter of the memory of the machine or of its control group")
            .help(
                "Memory for requests in flight of all clients together, beyond 128 KiB for each; at \
                   least 64m. When it is used up, larger requests wait, and a client without progress \
                   for 30 s is closed.",
            )
            .example("4g"),
    ],
};

fn admin_path(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = directory(arguments, "admin", draft)?;
    draft.effective.process.admin_path.set(value, arguments.origin());
    Ok(())
}

pub(super) fn home_path(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = directory(arguments, "home", draft)?;
    draft.effective.process.home_path.set(Some(value), arguments.origin());
    Ok(())
}

fn pid_path(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.path("pid")?;
    draft.finish(arguments);
    draft.effective.process.pid_path.set(value.into(), arguments.origin());
    Ok(())
}

/// Reads a site name.
pub(super) fn site_name_token<'a>(
    arguments: &mut Arguments<'a>,
) -> Result<&'a DirectiveToken, DirectiveFault> {
    let token = arguments.need("site name")?;
    let length = token.text.chars().count();
    if length > SITE_NAME_MAX {
        let what = format!("site name of {length} characters");
        return Err(DirectiveFault::at(token, what, format!("allowed: at most {SITE_NAME_MAX} characters")));
    }
    Ok(token)
}

fn site_name(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = site_name_token(arguments)?;
    draft.finish(arguments);
    let name = effective::site_name(&token.text);
    if name != token.text {
        let what = format!("site name '{}' is reported as '{name}'", token.text);
        draft.note(ProblemKind::Doubtful, token, what, "letters, digits, '_', '-', ':' and '.' are kept");
    }
    draft.effective.process.site_name.set(Some(name), arguments.origin());
    Ok(())
}

fn drain(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.time("drain", between(0, 86_400))?;
    draft.finish(arguments);
    draft.effective.process.drain.set(value, arguments.origin());
    Ok(())
}

fn io_uring(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = switch(arguments, "iouring")?;
    draft.finish(arguments);
    draft.effective.process.io_uring.set(value, arguments.origin());
    Ok(())
}

fn polling(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = switch(arguments, "polling")?;
    draft.finish(arguments);
    draft.effective.process.polling.set(value, arguments.origin());
    Ok(())
}

fn inventory(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("inventory")?;
    let value = match token.text.as_ref() {
        "partial" => false,
        "complete" => true,
        other => {
            let what = format!("inventory '{other}' is not known");
            return Err(DirectiveFault::at(token, what, "allowed: partial, complete"));
        }
    };
    draft.finish(arguments);
    draft.effective.process.complete_inventory.set(value, arguments.origin());
    Ok(())
}

fn memory(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.size("memory", from(MEMORY_BYTES_MIN))?;
    draft.finish(arguments);
    draft.effective.process.memory.set(Some(value), arguments.origin());
    Ok(())
}

fn switch(arguments: &mut Arguments<'_>, what: &'static str) -> Result<bool, DirectiveFault> {
    let token = arguments.need(what)?;
    match token.text.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(arguments.invalid(token, what)),
    }
}

fn log_format(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("log format")?;
    let value = match token.text.as_str() {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        _ => return Err(arguments.invalid(token, "log format")),
    };
    draft.finish(arguments);
    draft.effective.process.log_format.set(value, arguments.origin());
    Ok(())
}
