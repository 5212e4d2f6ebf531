//! The options of `sec.protocol gsi` as text.

use crate::effective::{GridExport, GsiOptions, VomsOptions};
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
