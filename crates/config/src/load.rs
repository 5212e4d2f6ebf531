//! Loads a file and the command line into the effective configuration and a report.
//!
//! It is the only code that joins the parts of this crate: `language`, `directives` and `values`
//! are independent of the command line.

use std::path::PathBuf;

use crate::directives::{
    Arguments, DirectiveFault, Draft, ExportDraft, ProtocolParameters, Standing, check_authorization,
    check_entity_names, check_http, check_list_sources, check_macaroons, check_multi_user, check_old_clients,
    check_proxy, check_security, check_tls, check_tls_protocols, check_token_login, check_voms,
    every_directive, find_directive, finish_certificate, finish_proxies, nearest_directive,
    of_another_component, read_by_xrootd, resolve, unprotected,
};
use crate::effective::{
    self, AddressFamily, ChecksumKind, DirectorySetting, EXPORT_DEFAULT, Effective, Export, ExportAttributes,
    FreeSpace, HttpConfig, HttpPort, LogFormat, ManagerAddress, NodeRole, OriginUrl, PageReaders, Port,
    ProxyOrigin, ProxyServer, ServerPages, StoreKeys, TlsAuthorities, TlsCertificate, Trace,
};
use crate::language::{DirectiveToken, Evaluated, Evaluation, Statement, evaluate};
use crate::report::{ConfigReport, ProblemKind, Strictness};
use crate::setting::{Origin, Position, Setting};
use crate::source::ConfigSource;
use crate::values;

/// Values from the command line. They take precedence over the file. Exports add to those of the
/// file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// `scalla serve DIR`: the directory served as `/`, instead of `oss.localroot` and the exports
    /// of the file.
    pub directory: Option<PathBuf>,
    /// `--origin`: the server whose files are served; replaces that of the file.
    pub origin: Option<OriginUrl>,
    /// `--s3-endpoint`: the object store of a bucket.
    pub store_endpoint: Option<ProxyServer>,
    /// `--s3-region`.
    pub store_region: Option<String>,
    /// `--s3-credentials`: the file with its keys.
    pub store_keys: Option<PathBuf>,
    /// `--cache`: the directory of the disk cache, and `--cache-size`.
    pub cache: Option<(PathBuf, Option<u64>)>,
    /// `--read-only`: makes each export read-only.
    pub read_only: bool,
    /// Path arguments, exported under their own names.
    pub exports: Vec<String>,
    /// `-p`, `--port`.
    pub port: Option<Port>,
    /// `-I`.
    pub family: Option<AddressFamily>,
    /// `-a`, `-A`.
    pub admin_path: Option<DirectorySetting>,
    /// Directory of the pid file, if the command line sets it.
    pub pid_path: Option<PathBuf>,
    /// `-w`, `-W`.
    pub home_path: Option<DirectorySetting>,
    /// `-S`.
    pub site_name: Option<String>,
    /// `-d`: enables every trace.
    pub debug: bool,
    /// Format of log lines.
    pub log_format: Option<LogFormat>,
    /// `scalla manager`, `scalla supervisor`, `scalla meta`: the role, which overrides the file.
    pub role: Option<NodeRole>,
    /// `--manager`: managers, which replace those of the file.
    pub managers: Vec<ManagerAddress>,
    /// `--meta`: meta managers, which replace those of the file.
    pub meta_managers: Vec<ManagerAddress>,
    /// `--cluster-port`: the port where nodes log in to a manager or supervisor.
    pub cluster_port: Option<Port>,
    /// `--tls`: the certificate, which replaces that of the file.
    pub tls: Option<TlsCertificate>,
    /// `--http`: HTTP on the same port, and the dashboard for this machine where the file does not name its readers.
    pub http: bool,
    /// `--min-free`: free space that a server must have for new files; replaces `cms.space min`.
    pub min_free: Option<FreeSpace>,
}

/// A configuration to load.
#[derive(Clone, Debug, Default)]
pub struct ConfigInput {
    /// The configuration file; `None` means the built-in defaults.
    pub file: Option<String>,
    /// The program, instance and host for which the file is evaluated.
    pub evaluation: Evaluation,
    /// The command line.
    pub overrides: Overrides,
    /// Treatment of unknown directives.
    pub strictness: Strictness,
}

/// The result of a load. A server starts only if [`ConfigReport::is_ok`].
#[derive(Clone, PartialEq, Debug)]
pub struct Loaded {
    /// The values: complete, with defaults where the report has errors.
    pub effective: Effective,
    /// All problems.
    pub report: ConfigReport,
}

/// The program that serves clients.
const XROOTD: &str = "xrootd";
/// The program of a cluster node.
const CMSD: &str = "cmsd";
/// Prefixes of the directives that cmsd reads for the cluster.
const CMSD_PREFIXES: [&str; 4] = ["all.", "cms.", "scalla.clusterkey", "xrd."];

/// Loads a configuration. Reads files through `source` and has no side effects. It blocks as the
/// source does.
#[must_use]
pub fn load(request: &ConfigInput, source: &dyn ConfigSource) -> Loaded {
    let mut report = ConfigReport::new(request.strictness);
    let evaluated = read(request, &request.evaluation, source, &mut report);
    let effective = Effective {
        program: request.evaluation.program.clone(),
        instance: request.evaluation.instance.clone(),
        host: request.evaluation.host.clone(),
        environment: evaluated.environment,
        ..Effective::default()
    };
    let mut draft = Draft {
        effective,
        exports: Vec::new(),
        object_ids: None,
        defaults: Vec::new(),
        parameters: ProtocolParameters::default(),
        report: &mut report,
        source,
    };
    for statement in &evaluated.statements {
        apply(statement, &mut draft);
    }
    if request.file.is_some() && request.evaluation.program == XROOTD {
        as_cmsd(request, &mut draft);
    }
    finish_proxies(&mut draft.effective, draft.report);
    replaced(&request.overrides, &mut draft);
    command_line(&request.overrides, &mut draft);
    let Draft { mut effective, exports, object_ids, defaults, parameters, .. } = draft;
    check_security(&effective.security, parameters, &mut report);
    if let Some(origin) = object_ids.filter(|_| exports.is_empty() && request.overrides.directory.is_none()) {
        let what = format!("only object ids are exported; {EXPORT_DEFAULT} is not served instead");
        report.add(ProblemKind::Unsupported, origin, what, "export a path");
    }
    effective.storage.exports = resolve(exports, &defaults);
    finish(&request.overrides, &mut effective);
    finish_certificate(&mut effective, &mut report);
    check_authorization(&effective, &mut report);
    check_tls(&effective, &mut report);
    check_http(&effective, &mut report);
    check_macaroons(&effective, &mut report);
    check_tls_protocols(&effective, &mut report);
    check_token_login(&effective, &mut report);
    check_voms(&effective, &mut report);
    check_list_sources(&effective, &mut report);
    check_old_clients(&effective, &mut report);
    check_entity_names(&effective, &mut report);
    check_multi_user(&effective, &mut report);
    check_proxy(&effective, &mut report);
    Loaded { effective, report }
}

/// Returns the directives of the file that apply to the program of `evaluation`.
fn read(
    request: &ConfigInput,
    evaluation: &Evaluation,
    source: &dyn ConfigSource,
    report: &mut ConfigReport,
) -> Evaluated {
    let Some(file) = &request.file else { return Evaluated::default() };
    let takes_condition =
        |name: &str| find_directive(name).is_some_and(|directive| directive.takes_condition());
    evaluate(file, source, evaluation, &takes_condition, report)
}

/// Reads the file again as cmsd for the directives of the cluster, because this process is both
/// programs.
fn as_cmsd(request: &ConfigInput, draft: &mut Draft<'_>) {
    let evaluation = Evaluation { program: CMSD.to_owned(), ..request.evaluation.clone() };
    let mut report = ConfigReport::new(request.strictness);
    let evaluated = read(request, &evaluation, draft.source, &mut report);
    let mut cmsd = Draft {
        effective: Effective::default(),
        exports: Vec::new(),
        object_ids: None,
        defaults: Vec::new(),
        parameters: ProtocolParameters::default(),
        report: &mut report,
        source: draft.source,
    };
    for statement in &evaluated.statements {
        if CMSD_PREFIXES.iter().any(|prefix| statement.name.text.starts_with(prefix)) {
            apply(statement, &mut cmsd);
        }
    }
    let Draft { effective: cmsd, exports, .. } = cmsd;
    draft.report.append_new(report);
    merge(cmsd, draft);
    let options = |export: &ExportDraft| export.options.iter().map(|option| option.names).collect::<Vec<_>>();
    let same = |a: &ExportDraft, b: &ExportDraft| a.prefix == b.prefix && options(a) == options(b);
    let differs = exports.len() != draft.exports.len()
        || exports.iter().zip(&draft.exports).any(|(cmsd, xrootd)| !same(cmsd, xrootd));
    if differs && draft.effective.cluster.is_cluster_node() {
        let origin = exports.first().or(draft.exports.first()).map_or(Origin::Default, |e| e.origin.clone());
        let what = "all.export differs between xrootd and cmsd; the cluster uses the exports of xrootd";
        draft.report.add(ProblemKind::Doubtful, origin, what, "");
    }
}

/// Takes over the values that cmsd reads for the cluster. All other values are those of xrootd.
fn merge(cmsd: Effective, draft: &mut Draft<'_>) {
    let xrootd = &draft.effective;
    let mut cluster = cmsd.cluster;
    read_by_xrootd(&xrootd.cluster, &mut cluster);
    let role = &xrootd.cluster.role;
    if cluster.role.origin.is_default() {
        cluster.role = role.clone();
        cluster.of_proxies = xrootd.cluster.of_proxies;
    } else if !role.origin.is_default() && xrootd.cluster.role_name() != cluster.role_name() {
        let what = format!("xrootd is {} and cmsd is {}", xrootd.cluster.role_name(), cluster.role_name());
        let allowed = format!("both are one process: give them one role ({})", role.origin);
        draft.report.add(ProblemKind::Unsupported, cluster.role.origin.clone(), what, allowed);
    }
    if cmsd.network.port.value != xrootd.network.port.value {
        cluster.port = Setting::new(Some(cmsd.network.port.value), cmsd.network.port.origin);
    }
    cluster.connect = cmsd.network.allow;
    draft.effective.cluster = cluster;
}

/// Applies one directive to the draft.
fn apply(statement: &Statement, draft: &mut Draft<'_>) {
    let name = &statement.name;
    let Some(directive) = find_directive(&name.text) else {
        if !of_another_component(&name.text) {
            unknown(name, draft);
        }
        return;
    };
    let mut arguments = Arguments::new(directive.grammar, name, &statement.arguments);
    match (directive.apply)(&mut arguments, draft) {
        Ok(()) if directive.standing == Standing::InForce => draft.report.count_in_force(),
        Ok(()) => {}
        Err(fault) => {
            let what = format!("{}: {}", name.text, fault.what);
            let subject = format!("{} {}", name.text, fault.subject);
            draft.report.add_about(subject.trim_end(), fault.kind, fault.origin, what, fault.allowed);
        }
    }
}

fn unknown(name: &DirectiveToken, draft: &mut Draft<'_>) {
    let hint = match nearest_directive(&name.text) {
        Some(known) => format!("did you mean {known}?"),
        None => match name.text.split_once('.') {
            Some((prefix, _)) if !prefix_known(prefix) => {
                format!("there is no prefix '{prefix}.'")
            }
            Some(_) => "no similar directive exists".to_owned(),
            None => "a directive has the form prefix.name".to_owned(),
        },
    };
    let what = format!("unknown directive '{}'", name.text);
    // An unknown directive of these prefixes may restrict access.
    if let Some(("acc" | "gsi" | "sec" | "voms", _)) = name.text.split_once('.') {
        let DirectiveFault { kind, what, allowed, .. } = unprotected(name, &what);
        let allowed = format!("{hint}; {allowed}");
        return draft.report.add_about(&name.text, kind, name.origin(), what, allowed);
    }
    draft.report.add(ProblemKind::Unknown, name.origin(), what, hint);
}

fn prefix_known(prefix: &str) -> bool {
    let mut names = every_directive().flat_map(|directive| directive.names);
    names.any(|name| name.split_once('.').is_some_and(|(known, _)| known == prefix))
}

/// Reports the directives of the file that a served directory overrides.
fn replaced(overrides: &Overrides, draft: &mut Draft<'_>) {
    let Some(directory) = &overrides.directory else { return };
    let instead = format!("{} is served as / instead", directory.display());
    let local_root = draft.effective.storage.local_root.clone();
    if local_root.value.as_ref().is_some_and(|path| path != directory) {
        draft.report.add(ProblemKind::Ignored, local_root.origin, "oss.localroot is not used", &instead);
    }
    for export in draft.exports.iter().filter(|export| export.prefix != "/") {
        let what = format!("{} is not exported", export.prefix);
        draft.report.add(ProblemKind::Ignored, export.origin.clone(), what, &instead);
    }
}

fn command_line(overrides: &Overrides, draft: &mut Draft<'_>) {
    let process = &mut draft.effective.process;
    if let Some(directory) = &overrides.admin_path {
        process.admin_path = Setting::from_command_line(directory.clone());
    }
    if let Some(path) = &overrides.pid_path {
        process.pid_path = Setting::from_command_line(path.clone());
    }
    if let Some(directory) = &overrides.home_path {
        process.home_path = Setting::from_command_line(Some(directory.clone()));
    }
    if let Some(name) = &overrides.site_name {
        process.site_name = Setting::from_command_line(Some(effective::site_name(name)));
    }
    if let Some(format) = overrides.log_format {
        process.log_format = Setting::from_command_line(format);
    }
    proxy_line(overrides, &mut draft.effective);
    cluster_line(overrides, &mut draft.effective.cluster);
    if let Some(least) = overrides.min_free {
        min_free(least, draft);
    }
    let network = &mut draft.effective.network;
    if let Some(port) = overrides.port {
        network.port = Setting::from_command_line(port);
    }
    if let Some(family) = overrides.family {
        network.family = Setting::from_command_line(family);
    }
    if let Some(certificate) = &overrides.tls {
        network.tls = Setting::from_command_line(Some(certificate.clone()));
        if network.tls_authorities.is_none() {
            network.tls_authorities = Setting::from_command_line(Some(TlsAuthorities::default()));
        }
    }
    if overrides.http {
        serve_http(&mut draft.effective.http);
    }
    if overrides.debug {
        let everything = Setting::from_command_line(Trace { options: Vec::new(), all: true });
        network.trace = everything.clone();
        draft.effective.protocol.trace = everything.clone();
        draft.effective.security.trace = everything.clone();
        draft.effective.authorization.macaroons.trace = everything.clone();
        draft.effective.logical.trace = everything.clone();
        draft.effective.storage.trace = everything.clone();
        draft.effective.cluster.trace = everything;
    }
    for path in &overrides.exports {
        // Checked like a path in a file, except for the position.
        let position = Position { file: "command line".into(), line: 0, column: 0 };
        match values::path(&DirectiveToken { text: path.clone(), position }, "export") {
            Ok(prefix) if draft.exports.iter().any(|export| export.prefix == prefix) => {}
            Ok(prefix) => {
                let origin = Origin::CommandLine;
                let defaults = draft.defaults.len();
                draft.exports.push(ExportDraft { prefix, defaults, options: Vec::new(), origin });
            }
            Err(fault) => draft.report.add(fault.kind, Origin::CommandLine, fault.what, fault.allowed),
        }
    }
}

/// Takes the origin and the disk cache of a proxy.
fn proxy_line(overrides: &Overrides, effective: &mut Effective) {
    let proxy = &mut effective.proxy;
    if let Some(origin) = &overrides.origin {
        proxy.enabled = Setting::from_command_line(true);
        let (fixed, directory, bucket) = match origin {
            OriginUrl::Server(server, directory) => (Some(server.clone()), directory.clone(), None),
            OriginUrl::Bucket(bucket) => (None, None, Some(bucket.clone())),
        };
        let origin = ProxyOrigin { forwards: Vec::new(), fixed, bucket };
        proxy.origin = Setting::from_command_line(Some(origin));
        if directory.is_some() {
            proxy.local_root = Setting::from_command_line(directory);
        }
    }
    if let Some(endpoint) = &overrides.store_endpoint {
        proxy.store.endpoint = Setting::from_command_line(Some(endpoint.clone()));
    }
    if let Some(region) = &overrides.store_region {
        proxy.store.region = Setting::from_command_line(region.clone());
    }
    if let Some(file) = &overrides.store_keys {
        proxy.store.keys = Setting::from_command_line(Some(StoreKeys::of(file.clone())));
    }
    if let Some((directory, bytes)) = &overrides.cache {
        effective.storage.local_root = Setting::from_command_line(Some(directory.clone()));
        effective.proxy.cache.enabled = Setting::from_command_line(true);
        effective.proxy.cache.files_bytes = Setting::from_command_line(*bytes);
    }
}

fn cluster_line(overrides: &Overrides, cluster: &mut effective::ClusterConfig) {
    if let Some(role) = overrides.role {
        cluster.role = Setting::from_command_line(role);
    }
    for (from, list) in
        [(&overrides.managers, &mut cluster.managers), (&overrides.meta_managers, &mut cluster.meta_managers)]
    {
        if !from.is_empty() {
            *list = from.iter().cloned().map(Setting::from_command_line).collect();
        }
    }
    if let Some(port) = overrides.cluster_port {
        cluster.port = Setting::from_command_line(Some(port));
        cluster.supervisor_port = Setting::from_command_line(port);
    }
}

/// Serves HTTP on the port of the xroot protocol, unless the configuration names others.
fn serve_http(http: &mut HttpConfig) {
    if http.ports.is_empty() {
        let port = HttpPort { protocol: "http".to_owned(), number: None };
        http.ports.push(Setting::from_command_line(port));
    }
    if http.pages.value.dashboard == PageReaders::Nobody {
        let pages = ServerPages { dashboard: PageReaders::Local, ..http.pages.value.clone() };
        http.pages = Setting::from_command_line(pages);
    }
}

/// Sets the minimum free space for new files, which applies to servers with a manager.
fn min_free(least: FreeSpace, draft: &mut Draft<'_>) {
    let cluster = &mut draft.effective.cluster;
    cluster.space.least = Setting::from_command_line(least);
    cluster.space.enough = Setting::from_command_line(least.enough());
    let (what, allowed) = if cluster.role.redirects() {
        (format!("a {} has no files of its own", cluster.role.name()), "set it on the servers below it")
    } else if !cluster.is_cluster_node() {
        let what = "no manager places files on this server; it is standalone".to_owned();
        (what, "name its manager (--manager HOST), or omit the option")
    } else {
        return;
    };
    let what = format!("--min-free: {what}");
    draft.report.add(ProblemKind::Contradiction, Origin::CommandLine, what, allowed);
}

fn finish(overrides: &Overrides, effective: &mut Effective) {
    let defaults = *effective.storage.defaults;
    let export = |prefix: &str, origin| Export { prefix: prefix.to_owned(), attributes: defaults, origin };
    let storage = &mut effective.storage;
    if let Some(directory) = &overrides.directory {
        storage.local_root = Setting::from_command_line(Some(directory.clone()));
        let attributes = storage.exports.iter().find(|export| export.prefix == "/").map(|own| own.attributes);
        let attributes = attributes.unwrap_or(defaults);
        storage.exports = vec![Export { attributes, ..export("/", Origin::CommandLine) }];
        // Without a directive on checksums, a served directory offers all of them.
        if effective.protocol.checksums.origin.is_default() {
            effective.protocol.checksums.value.offered = ChecksumKind::ALL.to_vec();
        }
    } else if storage.exports.is_empty() {
        // A redirector has no files of its own, so exporting everything reveals nothing. The files of
        // an origin on the command line are all to be served.
        let has_no_files = effective.cluster.role.redirects() || overrides.origin.is_some();
        let prefix = if has_no_files { "/" } else { EXPORT_DEFAULT };
        storage.exports.push(export(prefix, Origin::Default));
    }
    if overrides.read_only {
        for export in &mut storage.exports {
            export.attributes = ExportAttributes { read_only: true, ..export.attributes };
        }
    }
}
