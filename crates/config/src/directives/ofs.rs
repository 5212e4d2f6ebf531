//! Directives of the logical file system: `ofs.`, and `scalla.tpcsource`.
//!
//! The functions of `ofs.tpc` and `ofs.forward` are in `third_party` and `cluster`.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries::{self, LibraryPurpose};
use super::shared::{option_without_effect, trace};
use super::standing::{Standing, UsageFrequency};
use super::{authorization, cluster, notification, third_party};
use crate::effective::{
    CheckpointFailure, CheckpointMode, ChecksumKind, ModeRange, NotifyTarget, PersistMode, XATTR_PREFIX_BYTES,
};
use crate::language::DirectiveToken;
use crate::values::{self, between, from};

pub(crate) const TRACE: &[&str] = &[
    "aio", "chkpnt", "chmod", "close", "closedir", "debug", "delay", "dir", "exists", "fsctl", "getstats",
    "io", "mkdir", "most", "open", "opendir", "qscan", "read", "readdir", "redirect", "remove", "rename",
    "stat", "sync", "truncate", "write",
];

/// Maximum hold time of incomplete files and maximum delay of clients, in seconds.
const YEAR: u64 = 365 * 86_400;
/// Read sizes for checksums are multiples of this, in bytes.
const CHECKSUM_READ_UNIT: u64 = 64 << 10;
/// Maximum length of an extended attribute name in the system, in bytes.
const XATTR_NAME_MAX: u32 = 255;
/// Maximum length of an extended attribute value in the system, in bytes.
const XATTR_VALUE_MAX: u64 = 65_536;

pub(super) const SECTION: Section = Section {
    title: "Logical files: ofs.",
    about: "Persist on close, checkpoints, modes of new files, extended attributes, authorization.",
    directives: &[
        Directive::new(
            &["ofs.persist"],
            UsageFrequency::Common,
            "[auto|manual|off] [hold time] [logdir path] [sync number] [nosync]",
            persist,
        )
        .default("manual hold 10m logdir <adminpath> sync 1")
        .help("Persist on successful close: `auto` for each new file, `manual` if the client requests \
               it. The incomplete file of a lost client is kept for `hold`, so that the client can \
               continue. The journal of such files is in `<logdir>/[<instance>/].ofs/posc/`. A file is \
               synced before it counts as complete, so a close that succeeded survives a power failure. \
               `nosync` leaves syncing to the operating system; the server logs a warning at its start. \
               XRootD does not support `nosync`.")
        .example("auto hold 5m"),
        Directive::new(
            &["ofs.chkpnt"],
            UsageFrequency::Common,
            "[disable|enable] [cprerr {makero|stopio}] [maxsz size] [path]",
            checkpoint,
        )
        .default("on, cprerr makero, maxsz 1m, <adminpath>/.ofs/chkpnt; off if that is under /tmp")
        .help("Checkpoints of files that are changed in place. `cprerr`: treatment of a file that cannot \
               be restored. `maxsz`: maximum size of a checkpoint, at least 1m.")
        .example("enable maxsz 100m /var/spool/chkpnt"),
        Directive::new(
            &["ofs.crmode"],
            UsageFrequency::Common,
            "[dirs spec] [files spec], spec {common|legacy|[raw] min:max}",
            creation_modes,
        )
        .default("legacy")
        .help("Modes of new directories and files: the requested mode or-ed with min, then and-ed with \
               max. legacy is 0000:0775; common is 0700:0775 for directories, 0600:0664 for files.")
        .example("dirs common files 0600:0644"),
        Directive::new(&["ofs.cksrdsz"], UsageFrequency::Rare, "size", checksum_read_size)
            .default("1m")
            .help("Bytes per read during the computation of a checksum, rounded up to 64k, at most 1g.")
            .example("4m"),
        Directive::new(&["ofs.ckslib"], UsageFrequency::Most, "{type|*} [++] library [parameters]", checksum_library)
            .default("built in")
            .help("Checksum plug-in. adler32, crc32, crc32c, md5, sha1, sha256 and zcrc32 are built in; \
                   XRootD's library for zcrc32 selects the built-in one. libXrdMultiuser.so belongs to \
                   `ofs.osslib ++ libXrdMultiuser.so`; checksums are then computed with the rights of the user.")
            .example("zcrc32 libXrdCksCalczcrc32.so"),
        Directive::new(&["ofs.dirlist"], UsageFrequency::Common, "{local|remote}", directory_listing)
            .default("local")
            .help("Source of directory listings. Without a cluster it is always this server.")
            .example("local"),
        Directive::new(&["ofs.maxdelay"], UsageFrequency::Common, "time", max_delay)
            .default("60s")
            .help("Maximum wait sent to a client, at least 30s.")
            .example("2m"),
        Directive::new(&["ofs.xattr"], UsageFrequency::Rare, "[maxnsz bytes] [maxvsz size] [uset {on|off}]", xattr)
            .default("maxnsz 255 maxvsz 64k uset on")
            .help("Limits of names and values of extended attributes, and whether clients may use them. \
                   The prefix `user.U.` takes 7 bytes of a name, so clients may use 248.")
            .example("maxvsz 4k"),
        Directive::new(&["ofs.trace"], UsageFrequency::Common, "{all|off|none|[-]option}…", ofs_trace)
            .default("off")
            .help("Log level of the logical file system: some options debug, `all` trace.")
            .example("open close"),
        Directive::new(&["ofs.authorize"], UsageFrequency::Most, "[1]", authorization::authorize)
            .default("off: all clients may do everything")
            .help("Enables authorization: the rules of acc.authdb, and with ofs.authlib tokens and macaroons, decide about each request."),
        Directive::new(&["ofs.authlib"], UsageFrequency::Most, "[++] library [parameters]", authorization::library)
            .default("the rules of acc.authdb")
            .help("Layers of authorization: the rules of acc.authdb (`default`, `libXrdAcc.so`), tokens \
                   (`libXrdAccSciTokens.so [config=path]`, by default with `/etc/xrootd/scitokens.cfg`), and \
                   macaroons (`libXrdMacaroons.so`, with the directives `macaroons.`). With `++` the layer is on top of \
                   those before, which decide about what it leaves to them. Without `++` it replaces them; \
                   `libXrdMacaroons.so [library [parameters]]` names the layer below, by default the rules. Other \
                   libraries stop the start.")
            .example("++ libXrdAccSciTokens.so config=/etc/xrootd/scitokens.cfg")
            .stops_with("++ libXrdVoms.so"),
        Directive::new(&["ofs.osslib"], UsageFrequency::Most, "[+cksio +mmapio +xattr] [++] library [parameters]", storage_library)
            .default("built in")
            .help("Storage plug-in. `libXrdPss.so` makes the server a proxy; see [proxy.md](proxy.md). `++ libXrdMultiuser.so` \
                   makes each operation with the rights of the account of its client; see \
                   [security.md](security.md#acting-as-the-user-multi-user). Caches are not in force yet and do not start.")
            .example("++ libXrdMultiuser.so"),
        Directive::new(&["ofs.xattrlib"], UsageFrequency::Rare, "{osslib | [++] library} [parameters]", xattr_library)
            .default("built in")
            .help("Extended attributes plug-in.")
            .example("osslib"),
        Directive::new(&["ofs.cmslib"], UsageFrequency::Rare, "[++] library [parameters]", cluster_library)
            .default("built in")
            .help("Cluster plug-in.")
            .example("libXrdCmsRedirectLocal.so")
            .standing(Standing::NotYet),
        Directive::new(&["ofs.ctllib"], UsageFrequency::Rare, "[++] library [parameters]", control_library)
            .default("none")
            .help("Plug-in for opaque requests.")
            .standing(Standing::NotYet),
        Directive::new(&["ofs.preplib"], UsageFrequency::Rare, "[++] [+noauth] library [parameters]", prepare_library)
            .default("none")
            .help("Prepare plug-in.")
            .example("libXrdOfsPrepGPI.so -run /usr/bin/prepare")
            .standing(Standing::NotYet),
        Directive::new(
            &["scalla.tpcsource"],
            UsageFrequency::Common,
            "{allow|deny} {loopback|linklocal|private|pattern}…",
            third_party::sources,
        )
            .default("all but loopback, link-local and private networks in which neither this server nor the client is")
            .help("Allowed sources of third-party copies, by name or address; several of these \
                   directives accumulate. `deny` takes precedence over `allow`; any `allow` excludes all \
                   other sources. The address of the actual connection is checked, also after a \
                   redirect.")
            .example("allow *.example.org private"),
        Directive::new(&["ofs.tpc"], UsageFrequency::Most, third_party::GRAMMAR, third_party::apply)
            .default("off; ttl 7 15 xfr 9 streams 0,15")
            .help("Third-party copies between servers, as source and as destination; several of these \
                   directives accumulate. Without `pgm` the built-in client copies. An incomplete copy \
                   is always removed (`autorm`). `allow`: destinations that may fetch from here, by host, by \
                   `dn` (subject of the certificate, or name), `group` and `vo` (`%20` stands for a blank); one rule \
                   is enough, with all of its conditions. `require`: required authentication of clients and \
                   destinations; with `+` requests must also be encrypted or signed. \
                   `fcreds gsi`: copies log in to sources with the \
                   proxies that clients delegate; with `?` others copy without, otherwise they fail. \
                   `fcpath`: directory of the files with them for `pgm`, in which `=variable` names the file. `scan` and `echo` apply to \
                   the output of `pgm`.")
            .executes(|effective| {
                effective.logical.third_party.as_ref().is_some_and(|copies| copies.program.is_some())
            })
            .example("ttl 60 70 xfr 9 streams 4 restrict /data allow host *.example.org logok"),
        Directive::new(&["ofs.notify"], UsageFrequency::Common, notification::GRAMMAR, notification::notify)
            .default("none; msgs 90 10")
            .help("Reports what clients do with files, by a line for each event: all chmod close closer closew create \
                   fwrite mkdir mv open openr openw rm rmdir trunc; `-event` removes one. The program is started with \
                   the server and reads lines; the pipe is created if it is missing. `msgs`: maximum memory of lines that \
                   wait for the receiver, 1360 bytes times min and 4352 bytes times max together; more events are lost, and the log has their number. \
                   Clients never wait. See [monitoring.md](monitoring.md#events-for-a-program-of-the-site).")
            .executes(|effective| {
                let notification = effective.notification.notification.as_ref();
                notification.is_some_and(|one| matches!(one.target, NotifyTarget::Program(_)))
            })
            .example("closew create |/usr/bin/notify"),
        Directive::new(&["ofs.notifymsg"], UsageFrequency::Common, notification::MESSAGE_GRAMMAR, notification::message)
            .default("$TID event $LFN; $TID event $FMODE $LFN for chmod, create and mkdir; $TID mv $LFN1 $LFN2; $TID trunc $FSIZE")
            .help("The line of an event. Variables: $TID (client), $LFN or $LFN1 (path), $LFN2 (new path of mv), $CGI or \
                   $CGI1, $CGI2 (their opaque text), $FMODE (permission bits, in octal digits), $FSIZE (bytes, for closer, closew and trunc). `\\$` \
                   stands for the character.")
            .example("create $TID create $FMODE $LFN"),
        Directive::new(&["ofs.forward"], UsageFrequency::Common, "[1way|2way|3way {local|host:port}] {[-]operation…|all|off}", cluster::forward)
            .default("off")
            .help("Operations that a manager forwards to all its servers: chmod mkdir mv rm rmdir remove \
                   trunc. `1way`: success is reported to the client immediately; `2way`: the result is \
                   reported.")
            .example("2way rm mv"),
        Directive::not_yet(&["ofs.cksrt"], UsageFrequency::Rare, "[auto cipher|none|off|default] [chkcgi]")
            .default("none")
            .help("Cipher for checksums in replies.")
            .example("none"),
    ],
};

fn persist(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.logical.persist.value.clone();
    let mut token = arguments.need("persist option")?;
    loop {
        match token.text.as_str() {
            "auto" => value.mode = PersistMode::Auto,
            "manual" => value.mode = PersistMode::Manual,
            "off" => value.mode = PersistMode::Off,
            "hold" => value.hold = arguments.time("hold", between(0, YEAR))?,
            "logdir" => value.log_path = Some(arguments.path("logdir")?.into()),
            "nosync" => value.synced = false,
            "sync" => value.sync = arguments.count("sync", 0, 32_767)?,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.logical.persist.set(value, arguments.origin());
    Ok(())
}

fn checkpoint(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.logical.checkpoint.value.clone();
    let mut token = arguments.need("chkpnt option")?;
    loop {
        match token.text.as_str() {
            "enable" => value.mode = CheckpointMode::Enabled,
            "disable" => value.mode = CheckpointMode::Disabled,
            "cprerr" => {
                let action = arguments.need("cprerr action")?;
                value.on_failure = match action.text.as_str() {
                    "makero" => CheckpointFailure::MakeReadOnly,
                    "stopio" => CheckpointFailure::StopIo,
                    _ => return Err(arguments.invalid(action, "cprerr action")),
                };
            }
            "maxsz" => value.bytes_max = arguments.size("chkpnt maxsz", from(1 << 20))?,
            text if text.starts_with('/') => value.path = Some(values::path(token, "chkpnt")?.into()),
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.logical.checkpoint.set(value, arguments.origin());
    Ok(())
}

fn creation_modes(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = *draft.effective.logical.creation_modes;
    let mut token = arguments.need("crmode type")?;
    loop {
        match token.text.as_str() {
            "dirs" => value.directories = mode_range(arguments, ModeRange { min: 0o700, max: 0o775 })?,
            "files" => value.files = mode_range(arguments, ModeRange { min: 0o600, max: 0o664 })?,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.logical.creation_modes.set(value, arguments.origin());
    Ok(())
}

fn mode_range(arguments: &mut Arguments<'_>, common: ModeRange) -> Result<ModeRange, DirectiveFault> {
    let mut token = arguments.need("mode")?;
    match token.text.as_str() {
        "common" => return Ok(common),
        "legacy" => return Ok(ModeRange { min: 0, max: 0o775 }),
        "raw" => token = arguments.need("mode")?,
        _ => {}
    }
    let (min, max) = token.text.split_once(':').ok_or_else(|| arguments.invalid(token, "mode"))?;
    let range = ModeRange { min: values::mode(token, min)?, max: values::mode(token, max)? };
    if range.min & !range.max != 0 {
        let what = format!("mode {} demands bits that it forbids", token.text);
        return Err(DirectiveFault::at(token, what, "allowed: min:max, every bit of min also in max"));
    }
    Ok(range)
}

fn checksum_read_size(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.size("cksrdsz", between(1, 1 << 30))?.next_multiple_of(CHECKSUM_READ_UNIT);
    draft.finish(arguments);
    draft.effective.logical.checksum_read_bytes.set(value, arguments.origin());
    Ok(())
}

fn checksum_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let kind = arguments.need("checksum type")?;
    let library = libraries::library(arguments)?;
    libraries::select(arguments, library, LibraryPurpose::Checksum, draft)?;
    // `ofs.ckslib ++ library` names no type.
    if !matches!(kind.text.as_str(), "zcrc32" | "*" | "++") {
        let built_in = ChecksumKind::from_name(&kind.text).is_some();
        if !built_in {
            let names = ChecksumKind::ALL.map(ChecksumKind::name).join(" ");
            let what = format!("checksum '{}' is not built in", kind.text);
            return Err(DirectiveFault::at(kind, what, format!("allowed: {names}")));
        }
    }
    Ok(())
}

fn directory_listing(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("dirlist location")?;
    match token.text.as_str() {
        "local" => {}
        "remote" => option_without_effect(arguments, token, draft),
        _ => return Err(arguments.invalid(token, "dirlist location")),
    }
    draft.finish(arguments);
    Ok(())
}

fn max_delay(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.time("maxdelay", between(30, YEAR))?;
    draft.finish(arguments);
    draft.effective.logical.delay_max.set(value, arguments.origin());
    Ok(())
}

fn xattr(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = *draft.effective.logical.xattr;
    let mut token = arguments.need("xattr option")?;
    loop {
        match token.text.as_str() {
            "maxnsz" => {
                let bytes = arguments.count("maxnsz", XATTR_PREFIX_BYTES + 1, XATTR_NAME_MAX)?;
                value.name_bytes_max = bytes - XATTR_PREFIX_BYTES;
            }
            "maxvsz" => {
                let bytes = arguments.size("maxvsz", between(0, XATTR_VALUE_MAX))?;
                value.value_bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX);
            }
            "uset" => {
                let on = arguments.need("uset value")?;
                value.enabled = match on.text.as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(arguments.invalid(on, "uset value")),
                };
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.logical.xattr.set(value, arguments.origin());
    Ok(())
}

fn ofs_trace(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = trace(arguments, TRACE, draft)?;
    draft.effective.logical.trace.set(value, arguments.origin());
    Ok(())
}

fn selected(
    arguments: &mut Arguments<'_>,
    purpose: LibraryPurpose,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let library: &DirectiveToken = libraries::library(arguments)?;
    libraries::select(arguments, library, purpose, draft)
}

fn storage_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    selected(arguments, LibraryPurpose::Storage, draft)
}

fn xattr_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if arguments.take("osslib").is_some() {
        return Ok(());
    }
    selected(arguments, LibraryPurpose::Xattr, draft)
}

fn cluster_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    selected(arguments, LibraryPurpose::Cluster, draft)
}

fn control_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    selected(arguments, LibraryPurpose::FileSystem, draft)
}

fn prepare_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    selected(arguments, LibraryPurpose::Prepare, draft)
}
