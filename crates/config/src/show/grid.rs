//! The options of `sec.protocol gsi` as text.

use crate::effective::{GridExport, GridVoNames, GridVoUser, GsiOptions, VomsOptions};
use std::path::PathBuf;

pub(super) fn gsi_text(options: &GsiOptions) -> String {
    let list =
        |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",");
    let ciphers: Vec<&str> = options.ciphers.iter().map(|cipher| cipher.name()).collect();
    let mut words = vec![
        "gsi".to_owned(),
        format!("-certdir:{}", list(&options.authorities)),
        format!("-cert:{}", options.certificate.display()),
        format!("-key:{}", options.key.display()),
        format!("-cipher:{}", ciphers.join(":")),
        format!("-md:{}", options.digests.join(":")),
        format!("-ca:{}", options.authority_check.name()),
        format!("-crl:{}{}", options.revocation.name(), if options.downloads_lists { ",updt" } else { "" }),
    ];
    if !options.revocation_directories.is_empty() {
        words.push(format!("-crldir:{}", list(&options.revocation_directories)));
    }
    words.push(format!("-crlext:{}", options.revocation_extension));
    words.push(format!("-crlrefresh:{}", options.refresh.as_secs()));
    words.extend(options.map.as_ref().map(|map| format!("-gridmap:{}", map.display())));
    let by_subject = if options.names_by_subject { ",usedn" } else { "" };
    words.push(format!("-gmapopt:{}{by_subject}", options.mapping.name()));
    words.push(format!("-gmapto:{}", options.map_refresh.as_secs()));
    if let Some(voms) = &options.voms {
        words.push(format!("-vomsat:{}", if voms.is_required { "require" } else { "extract" }));
        words.push(format!("-vomsfunparms:{}", voms_text(voms)));
    }
    if let Some(path) = &options.name_file {
        words.push("-gmapfun:libXrdSecgsiGMAPDN.so".to_owned());
        words.push(format!("-gmapfunparms:{}", path.display()));
    }
    if let Some(names) = &options.vo_names {
        words.push("-authzfun:libXrdSecgsiAUTHZVO.so".to_owned());
        words.push(format!("-authzfunparms:{}", vo_names_text(names)));
        words.extend(names.only_without_attributes.then(|| "-authzcall:novoms".to_owned()));
    }
    words.extend(options.forwarding.map(|forwarding| {
        let field = if forwarding.as_endorsements { "endor" } else { "creds" };
        let part = if forwarding.is_full { "fullchain" } else { "lastcert" };
        format!("-authzpxy:{field}={part}")
    }));
    words.extend(options.asks_for_proxy.then(|| "-dlgpxy:request".to_owned()));
    words.extend(options.export.as_ref().map(|export| match export {
        GridExport::Credentials => "-exppxy:=creds".to_owned(),
        GridExport::File(template) => format!("-exppxy:{template}"),
    }));
    words.extend(options.monitors_subject.then(|| "-moninfo".to_owned()));
    words.extend(options.logs_subject.then(|| "-showdn:1".to_owned()));
    words.extend(options.new_hash_only.then(|| "-defaulthash".to_owned()));
    words.join(" ")
}

fn vo_names_text(names: &GridVoNames) -> String {
    let user = match &names.user {
        GridVoUser::CommonName => None,
        GridVoUser::Unchanged => Some("vo2usr=*".to_owned()),
        GridVoUser::Format(format) => Some(format!("vo2usr={format}")),
    };
    let organizations = (!names.organizations.is_empty()).then(|| names.organizations.join(","));
    let words = [
        organizations.map(|list| format!("valido={list}")),
        names.group.as_ref().map(|format| format!("vo2grp={format}")),
        user,
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    // An option needs a value.
    if words.is_empty() { "debug=0".to_owned() } else { words.join("&") }
}

fn voms_text(options: &VomsOptions) -> String {
    let list =
        |name: &str, words: &[String]| (!words.is_empty()).then(|| format!("{name}={}", words.join(",")));
    let format = |name: &str, text: &Option<String>| text.as_ref().map(|text| format!("{name}={text}"));
    let optional = [
        list("grps", &options.groups),
        list("vos", &options.organizations),
        format("grpfmt", &options.group_format),
        format("rolefmt", &options.role_format),
        format("vofmt", &options.organization_format),
    ];
    let words = std::iter::once(format!("grpopt={}", options.choice.name()));
    words.chain(optional.into_iter().flatten()).collect::<Vec<_>>().join("|")
}
