//! Directives of the storage: `oss.`.
//!
//! Export options, which `oss.defaults` shares with `all.export`, are in `export`.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::export;
use super::fault::DirectiveFault;
use super::libraries::{self, LibraryPurpose};
use super::name_rules;
use super::residency;
use super::shared::{option_without_effect, trace, without_effect};
use super::standing::{Standing, UsageFrequency};
use crate::effective::{Allocation, MountCheck, SpacePartition, SpaceRule, UsageLogConfig};
use crate::report::ProblemKind;
use crate::setting::Setting;
use crate::values::{self, DAY, between, from};

pub(crate) const TRACE: &[&str] = &["debug", "open", "opendir"];

/// Maximum interval between two measurements of free space, in seconds.
/// Maximum length of the name of a space, in characters.
const SPACE_NAME_MAX: usize = 63;

pub(super) const SECTION: Section = Section {
    title: "Storage: oss.",
    about: "Where the files lie, and the programs of mass storage.",
    directives: &[
        Directive::new(&["oss.localroot"], UsageFrequency::Most, "path", local_root)
            .default("none")
            .help("Prefix of logical paths on disk.")
            .example("/srv/data"),
        Directive::new(&["oss.defaults"], UsageFrequency::Most, "options", export::defaults)
            .default("r/w nocheck nodread nomig nopurge norcreate nostage ficl")
            .help(
                "Attributes of the exports below this directive that have no options of their own (see \
                   Export options). Several directives accumulate.",
            )
            .example("r/o nolock"),
        Directive::new(
            &["oss.space", "oss.cache"],
            UsageFrequency::Common,
            "name path[*] [chkmount id [nofail]] | name {assign|default} lfn…",
            space,
        )
        .default("none")
        .help(
            "Groups file systems into spaces. `path*`: each directory whose name starts with `path`. \
               `chkmount`: the directory must contain the file `id.NAME`, where NAME is the name of the \
               directory; otherwise an unmounted file system could be filled. With `nofail` the space \
               starts without that directory. `assign` and `default` select the space of new files by \
               path. Exports with `inplace` do not use spaces.",
        )
        .example("public /disk1/xrd"),
        Directive::new(&["oss.spacescan", "oss.cachescan"], UsageFrequency::Rare, "time", space_scan)
            .default("600s")
            .help(
                "Interval at which the quota file and the changes of other programs to the usage log are read. Free \
                   space is measured when a file is placed.",
            )
            .example("5m"),
        Directive::new(&["oss.alloc"], UsageFrequency::Rare, "min [headroom [fuzz]]", allocation)
            .default("0 0 0")
            .help(
                "Selection of a partition of a space: minimum free bytes, percentage added to the \
                   announced size, and percentage by which free space may differ and still count as \
                   equal.",
            )
            .example("1g 10 20"),
        Directive::new(&["oss.maxsize"], UsageFrequency::Rare, "size", max_size)
            .default("none")
            .help("Maximum size of a file; 0 is unlimited.")
            .example("100g"),
        Directive::new(&["oss.trace"], UsageFrequency::Common, "{all|off|none|[-]option}…", oss_trace)
            .default("off")
            .help("Log level of the storage: some options debug, `all` trace. Options: debug open opendir.")
            .example("open"),
        Directive::new(&["oss.fdlimit"], UsageFrequency::Common, "{fence|*} [max]", fd_limit)
            .default("half of the limit")
            .help(
                "Descriptors reserved for sockets. They share one budget with files here, limited by \
                   xrd.maxfd.",
            )
            .example("* 65536")
            .standing(Standing::NoEffect),
        Directive::new(
            &["oss.memfile"],
            UsageFrequency::Common,
            "[off] [max {size|n%}] [check xattr] [preload]",
            memory_file,
        )
        .default("off")
        .help("Memory mapped files. Files are read through the page cache instead.")
        .example("max 50%")
        .standing(Standing::NoEffect),
        Directive::new(
            &["oss.preread"],
            UsageFrequency::Rare,
            "{depth|on} [limit size] [qsize [=]number]",
            preread,
        )
        .default("0")
        .help("Read-ahead, which the kernel performs.")
        .example("3 limit 1m")
        .standing(Standing::NoEffect),
        Directive::new(&["oss.namelib"], UsageFrequency::Common, "library [parameters]", name_library)
            .default("oss.localroot")
            .help(
                "Name mapping plug-in. Only the built-in mapping by oss.localroot and scalla.namerule \
                   exists; a library stops the start.",
            )
            .standing(Standing::NotYet),
        Directive::new(&["scalla.namerule"], UsageFrequency::Common, name_rules::GRAMMAR, name_rules::name_rule)
            .default("none")
            .help(
                "Stores logical paths at and below `from` at and below `to` in oss.localroot. Without more \
                   words, paths below them are equal. `rucio`: `from/SCOPE:NAME` is stored as \
                   `to/SCOPE/xx/yy/NAME`, where xx and yy begin the MD5 checksum of `SCOPE:NAME`. `regex`: the \
                   whole path below `from` must match the first pattern and is replaced by the first result; the \
                   second pair is the inverse. Of several rules, the longest `from` applies. A name that does not \
                   lead back to itself does not exist. See [operating.md](operating.md#names-on-disk).",
            )
            .example("/atlas/rucio /data/rucio rucio"),
        Directive::new(
            &["oss.statlib"],
            UsageFrequency::Rare,
            "[-2 -arevents -non2n -preopen] library [parameters]",
            stat_library,
        )
        .default("none")
        .help("Plug-in for stat. A library stops the start.")
        .standing(Standing::NotYet),
        Directive::new(
            &["oss.usage"],
            UsageFrequency::Common,
            "{nolog|log path [sync n]|noquotafile|quotafile path}…",
            usage,
        )
        .default("nolog noquotafile")
        .help(
            "Accounting of the bytes of files in spaces. `log`: they are kept in the file `.Usage` of this directory, \
               which must exist; an instance has a subdirectory. The file is synced after each change, with `sync` after \
               n. `quotafile`: a file with lines `space size`. Usage and quotas are reported by `query space`; quotas \
               are not enforced, as in XRootD.",
        )
        .example("log /var/spool/xrootd quotafile /etc/xrootd/quotas"),
        Directive::new(&["oss.remoteroot"], UsageFrequency::Rare, "{path|url}", residency::remote_root)
            .default("none: the name in mass storage is the logical path")
            .help("Begin of the names in mass storage: it stands before the logical path.")
            .example("/hpss"),
        Directive::new(
            &["oss.stagecmd"],
            UsageFrequency::Most,
            "[async|sync] [creates] [|]command arguments",
            residency::stage_command,
        )
        .default("none")
        .help(
            "Program that stages missing files from mass storage, in place of `frm.xfr.copycmd in`. It is run for each file as \
               `command arguments REMOTE LOCAL`, and ends with status 0 when the file is complete at LOCAL, a temporary name, and \
               with 2 if there is no such file. `async |command` is started once, reads a line (oss.stagemsg) for each file, and \
               reports its end by a line `stage OK WORD`, `stage ENOENT WORD TEXT` or `stage BAD WORD TEXT`, WORD being \
               $RID of the line, in its output or in the pipe $NOTIFY. `|command` without `async` reports nothing: the server \
               looks at LOCAL, and takes a file that has the size and the checksum that oss.rsscmd returns for it. \
               `|` with one of XRootD's agents (`frm_...`) stands for the queue of this server. With `creates`, a \
               file that a client creates, and that is not on disk, is requested too; the program has to make it. `creates` is refused with oss.rsscmd.",
        )
        .executes(|effective| effective.residency.stage_program.is_some())
        .example("/usr/bin/stage"),
        Directive::new(&["oss.stagemsg"], UsageFrequency::Common, "text", residency::stage_message)
            .default("none: `oss.stagecmd |command` needs one")
            .help(
                "Line for each file that a program of `oss.stagecmd |command` is to stage, with the variables of \
                   frm.xfr.copycmd. $DST and $PFN are both the temporary name at which the program writes the file, and one of \
                   them is necessary. With `async`, so is $RID, the word with which it reports the end. $NOTIFY is the URL of a pipe for reports, `file:///` before its path.",
            )
            .example("$RID $NOTIFY $LFN $SRC $DST"),
        Directive::new(
            &["oss.xfr"],
            UsageFrequency::Common,
            "[deny time] [keep time] [up] [fdir path] [threads…]",
            residency::limits,
        )
        .default("deny 3h")
        .help(
            "`deny`: time for which requests for a file are refused after it could not be staged. `threads` is the \
               maximum number of programs of `oss.stagecmd` at once, or of files that a program of `async |command` has at once; \
               without it, frm.xfr.copymax applies, or 64. The other options \
               are accepted without effect, except for `up`, which is not in force yet.",
        )
        .example("deny 1h"),
        Directive::new(&["oss.rsscmd", "oss.msscmd"], UsageFrequency::Common, "[|]program [arguments]", residency::catalog)
            .default("none: the status of a file that is not on disk is unknown")
            .help(
                "Program that returns the status of files in mass storage: `program statx name`. It is run for each \
                   stat of a missing file of an export with `stage`, and for each file that is staged, migrated or purged. With `|` it \
                   reads `statx name` in a line instead, and answers with the same lines until the end of its input. One process \
                   answers many stats of clients; each file that is staged, migrated or purged has a process of its own. At most 8 \
                   processes of the server run at once, and 8 of each daemon. It also gets `create name mode`, `rm name`, \
                   `mv name name` and `dlist name`, each in a process of its own, if clients change or list names of \
                   exports with `stage` or `mig`.",
            )
            .executes(|effective| effective.residency.catalog.is_some())
            .example("/usr/bin/mss"),
    ],
};

fn local_root(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("localroot")?.into();
    draft.finish(arguments);
    let setting = &draft.effective.storage.local_root;
    if let Some(earlier) = &setting.value
        && *earlier != path
    {
        let what = format!("oss.localroot: {} is set already, at {}", earlier.display(), setting.origin);
        draft.note(ProblemKind::Contradiction, arguments.name, what, "the last one is in force; keep one");
    }
    draft.effective.storage.local_root.set(Some(path), arguments.origin());
    Ok(())
}

fn space(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let name = arguments.need("space name")?;
    if name.text.chars().count() > SPACE_NAME_MAX || name.text.contains(['/', ':', '&', '=']) {
        let allowed = format!("allowed: at most {SPACE_NAME_MAX} characters, none of / : & =");
        return Err(DirectiveFault::at(name, format!("invalid space name '{}'", name.text), allowed));
    }
    let what = arguments.need("space path")?;
    if let assign @ ("assign" | "default") = what.text.as_str() {
        let mut prefixes = vec![arguments.path("space lfn")?];
        while arguments.peek().is_some() {
            prefixes.push(arguments.path("space lfn")?);
        }
        let rule = SpaceRule { name: name.text.clone(), assign: assign == "assign", prefixes };
        draft.effective.storage.space_rules.push(Setting::new(rule, arguments.origin()));
        return Ok(());
    }
    let mut token = what.clone();
    let wildcard = token.text.ends_with('*');
    if wildcard {
        token.text.pop();
    }
    let path = values::path(&token, "space")?;
    // `/disks/*` means all directories in /disks, `/disks/d*` those whose names start with d.
    let path = if wildcard && token.text.ends_with('/') && path != "/" { format!("{path}/") } else { path };
    let mut mount_check = None;
    if arguments.take("chkmount").is_some() {
        let id = arguments.need("chkmount id")?;
        if id.text.contains('/') {
            return Err(arguments.invalid(id, "chkmount id"));
        }
        let optional = arguments.take("nofail").is_some();
        mount_check = Some(MountCheck { id: id.text.clone(), optional });
    }
    draft.finish(arguments);
    let space = SpacePartition { name: name.text.clone(), path: path.into(), wildcard, mount_check };
    draft.effective.storage.spaces.push(Setting::new(space, arguments.origin()));
    Ok(())
}

fn space_scan(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.time("spacescan", between(30, DAY))?;
    draft.finish(arguments);
    draft.effective.storage.space_scan.set(value, arguments.origin());
    Ok(())
}

fn usage(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.storage.accounting.value.clone();
    let mut option = arguments.need("usage option")?;
    loop {
        match option.text.as_str() {
            "nolog" => value.log = None,
            "log" => {
                let directory = arguments.path("usage log")?.into();
                let changes_per_sync = match arguments.take("sync") {
                    Some(_) => arguments.count("usage sync", 0, 1_000_000)?,
                    None => 0,
                };
                let instance = draft.effective.instance.clone();
                value.log = Some(UsageLogConfig { directory, instance, changes_per_sync });
            }
            "noquotafile" => value.quota_file = None,
            "quotafile" => value.quota_file = Some(arguments.path("usage quotafile")?.into()),
            _ => return Err(arguments.invalid(option, "usage option")),
        }
        match arguments.next() {
            Some(next) => option = next,
            None => break,
        }
    }
    draft.effective.storage.accounting.set(value, arguments.origin());
    Ok(())
}

fn allocation(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value =
        Allocation { bytes_min: arguments.size("alloc minfree", from(0))?, ..Allocation::default() };
    if let Some(token) = arguments.next() {
        value.headroom_percent = values::percent(token, "alloc headroom")?;
    }
    if let Some(token) = arguments.next() {
        value.fuzz_percent = values::percent(token, "alloc fuzz")?;
    }
    draft.finish(arguments);
    draft.effective.storage.allocation.set(value, arguments.origin());
    Ok(())
}

fn max_size(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.size("maxsize", from(0))?;
    draft.finish(arguments);
    draft.effective.storage.file_bytes_max.set((value > 0).then_some(value), arguments.origin());
    Ok(())
}

fn oss_trace(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = trace(arguments, TRACE, draft)?;
    draft.effective.storage.trace.set(value, arguments.origin());
    Ok(())
}

fn fd_limit(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let fence = arguments.need("fdlimit fence")?;
    if fence.text != "*" {
        values::count(fence, "fdlimit fence", from(0))?;
    }
    if let Some(max) = arguments.next()
        && max.text != "max"
    {
        values::count(max, "fdlimit max", from(0))?;
    }
    draft.finish(arguments);
    option_without_effect(arguments, fence, draft);
    Ok(())
}

fn memory_file(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("memfile option")?;
    loop {
        match token.text.as_str() {
            "off" | "preload" => {}
            "max" => {
                let value = arguments.need("memfile max value")?;
                if value.text.ends_with('%') {
                    values::percent(value, "memfile max")?;
                } else {
                    values::size(value, "memfile max", from(0))?;
                }
            }
            "check" => {
                let value = arguments.need("memfile check value")?;
                // `keep`, `lock` and `map` are from older releases.
                if !matches!(value.text.as_str(), "xattr" | "keep" | "lock" | "map") {
                    return Err(arguments.invalid(value, "memfile check"));
                }
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return without_effect(arguments, draft),
        }
    }
}

fn preread(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let depth = arguments.need("preread depth")?;
    if depth.text != "on" {
        values::count(depth, "preread depth", between(0, 1024))?;
    }
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "limit" => {
                arguments.size("preread limit", between(0, 16 << 20))?;
            }
            "qsize" => {
                let mut size = arguments.need("preread qsize")?.clone();
                size.text = size.text.trim_start_matches('=').to_owned();
                values::count(&size, "preread qsize", from(0))?;
            }
            _ => draft.unknown_option(arguments, token),
        }
    }
    option_without_effect(arguments, depth, draft);
    Ok(())
}

fn name_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let library = libraries::library(arguments)?;
    libraries::select(arguments, library, LibraryPurpose::Names, draft)
}

fn stat_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let library = libraries::library(arguments)?;
    libraries::select(arguments, library, LibraryPurpose::Storage, draft)
}
