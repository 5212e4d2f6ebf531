//! Directives of multi-user: `multiuser.`.
//!
//! The library `libXrdMultiuser.so` in `ofs.osslib` or `xrootd.fslib` enables it. These directives
//! limit the accounts that may be used, and the modes of new files and directories.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::part_without_effect;
use super::standing::{Standing, UsageFrequency};
use crate::effective::{AuthProtocol, Effective};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Origin;
use crate::values;

pub(super) const SECTION: Section = Section {
    title: "Acting as the user: multiuser.",
    about: "They are in force with `ofs.osslib ++ libXrdMultiuser.so`; see \
            [security.md](security.md#acting-as-the-user-multi-user).",
    directives: &[
        Directive::new(&["multiuser.umask"], UsageFrequency::Common, "octal", umask)
            .default("the umask of the process")
            .help(
                "Bits removed from the modes of new files and directories. With it, a directory mode of 0700 counts \
                   as 0777 before, because some clients always request 0700.",
            )
            .example("0022"),
        Directive::new(&["multiuser.minuid"], UsageFrequency::Common, "id", uid_min)
            .default("500")
            .help("Lowest user id of an account that may be used. Clients with a lower one are refused.")
            .example("1000"),
        Directive::new(&["multiuser.mingid"], UsageFrequency::Common, "id", gid_min)
            .default("500")
            .help("Lowest id of the primary group of an account that may be used.")
            .example("1000"),
        Directive::new(&["multiuser.checksumonwrite"], UsageFrequency::Common, "{on|off}", checksum_on_write)
            .default("off")
            .help("Without effect: checksums of new files are computed while they are written in any case.")
            .example("on")
            .standing(Standing::NoEffect),
        Directive::new(&["multiuser.writebuffersize"], UsageFrequency::Rare, "size", write_buffer)
            .default("0")
            .help("Without effect: data is written as it arrives.")
            .example("1m")
            .standing(Standing::NoEffect),
    ],
};

fn umask(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("umask")?;
    let value = values::mode(token, &token.text)?;
    draft.finish(arguments);
    draft.effective.multi_user.umask.set(Some(value), arguments.origin());
    Ok(())
}

fn uid_min(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = lowest(arguments, "minuid", draft)?;
    draft.effective.multi_user.uid_min.set(value, arguments.origin());
    Ok(())
}

fn gid_min(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = lowest(arguments, "mingid", draft)?;
    draft.effective.multi_user.gid_min.set(value, arguments.origin());
    Ok(())
}

/// Reads an id. The superuser is never used, so 0 is as good as 1.
fn lowest(arguments: &mut Arguments<'_>, what: &str, draft: &mut Draft<'_>) -> Result<u32, DirectiveFault> {
    let value = arguments.count(what, 0, u32::MAX - 1)?;
    draft.finish(arguments);
    Ok(value)
}

fn checksum_on_write(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("checksumonwrite value")?;
    match token.text.as_str() {
        "on" | "off" => {
            let why = "checksums of new files are computed while they are written";
            part_without_effect(arguments, token, why, draft);
        }
        _ => return Err(arguments.invalid(token, "checksumonwrite value")),
    }
    draft.finish(arguments);
    Ok(())
}

fn write_buffer(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("writebuffersize")?;
    values::size(token, "writebuffersize", values::from(0))?;
    part_without_effect(arguments, token, "data is written as it arrives", draft);
    draft.finish(arguments);
    Ok(())
}

/// Reports what cannot act as users, and settings without it.
pub(crate) fn check_multi_user(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.multi_user;
    if !*values.enabled {
        let settings: [(&str, &Origin); 4] = [
            ("multiuser.umask", &values.umask.origin),
            ("multiuser.minuid", &values.uid_min.origin),
            ("multiuser.mingid", &values.gid_min.origin),
            ("ofs.ckslib", &values.checksums.origin),
        ];
        for (name, origin) in settings.into_iter().filter(|(_, origin)| !origin.is_default()) {
            let what = format!("{name} has no effect, because operations are made as the server's own user");
            let allowed = "add ofs.osslib ++ libXrdMultiuser.so, or remove it";
            report.add_about(name, ProblemKind::Doubtful, origin.clone(), what, allowed);
        }
        return;
    }
    if let Some(space) = effective.storage.spaces.first() {
        let what = "oss.space: spaces belong to the server's user, so users cannot create files in them";
        let allowed = "remove oss.space, or libXrdMultiuser.so";
        report.add(ProblemKind::Unsupported, space.origin.clone(), what, allowed);
    }
    let copies = &effective.logical.third_party;
    if copies.value.as_ref().is_some_and(|copies| copies.program.is_some()) {
        let what = "ofs.tpc pgm: the program would write with the rights of the server instead of the user's";
        let allowed = "omit pgm to use the built-in client";
        report.add(ProblemKind::Unsupported, copies.origin.clone(), what, allowed);
    }
    let security = &effective.security;
    let has_certificates = effective.asks_for_certificates() && !effective.has_grid_logins();
    if has_certificates && effective.http.grid_map.is_none() {
        let what = "libXrdMultiuser.so: certificates of clients of HTTPS name no accounts, so clients that show one are refused";
        let allowed = "map subjects to accounts with http.gridmap, or add http.tlsclientauth off";
        report.add(ProblemKind::Doubtful, values.enabled.origin.clone(), what, allowed);
    }
    let names_itself = |protocol: &AuthProtocol| matches!(protocol, AuthProtocol::Unix);
    let who = match *security.enabled {
        false if has_certificates => {
            "only clients of HTTPS with certificates have names, so all other operations are made as the server's own user"
        }
        false => "no client logs in, so all operations are made as the server's own user",
        true if security.protocols.iter().any(|protocol| names_itself(protocol)) => {
            "with sec.protocol unix each client chooses its user name, and so the account with whose rights it acts"
        }
        true => return,
    };
    let what = format!("libXrdMultiuser.so: {who}");
    report.add(ProblemKind::Doubtful, values.enabled.origin.clone(), what, "use another sec.protocol");
}
