//! Validation of values against each other and against the disk.
//!
//! It is separate from `load` because it needs the complete configuration and looks at the disk.

mod notification;
mod staging;

use std::io;
use std::path::{Path, PathBuf};

use crate::effective::{
    AuthProtocol, CheckpointMode, CopyRequire, CopyScan, Effective, Export, MonitorEvent, NodeRole,
    PersistMode, Port, RedirectWhen, ThirdPartyCopy,
};
use crate::report::{ConfigReport, ProblemKind, Strictness};
use crate::setting::Origin;
use crate::source::describe;

/// Type of a path, and the permissions of this process on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathAccess {
    /// A directory.
    Directory {
        /// Set if it can be listed and entered.
        readable: bool,
        /// Set if entries can be created in it.
        writable: bool,
    },
    /// Anything else.
    Other,
}

/// A view of the file system.
pub trait Disk {
    /// Returns the type of `path`, following symbolic links.
    ///
    /// # Errors
    /// The error of the system.
    fn look(&self, path: &Path) -> io::Result<PathAccess>;
}

/// The file system of this machine, with the current permissions of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn look(&self, path: &Path) -> io::Result<PathAccess> {
        use rustix::fs::{Access, AtFlags, CWD, accessat};
        if !std::fs::metadata(path)?.is_dir() {
            return Ok(PathAccess::Other);
        }
        let may = |access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
        Ok(PathAccess::Directory {
            readable: may(Access::READ_OK | Access::EXEC_OK),
            writable: may(Access::WRITE_OK | Access::EXEC_OK),
        })
    }
}

/// Finds missing paths, inaccessible directories and contradictions. Definite errors are of kind
/// [`ProblemKind::Contradiction`]: errors, or warnings where existing files must start. All others
/// are warnings.
#[must_use]
pub fn check(effective: &Effective, disk: &dyn Disk, strictness: Strictness) -> ConfigReport {
    let mut check = DiskCheck { effective, disk, report: ConfigReport::new(strictness) };
    check.exports();
    check.directories();
    check.spaces();
    check.staging();
    check.migration();
    check.checking();
    check.purging();
    check.check_conflicts();
    check.copies();
    check.notification();
    check.entity_program();
    check.cluster();
    check.monitoring();
    check.report
}

struct DiskCheck<'a> {
    effective: &'a Effective,
    disk: &'a dyn Disk,
    report: ConfigReport,
}

impl DiskCheck<'_> {
    fn wrong(&mut self, origin: &Origin, what: String, allowed: &str) {
        self.report.add(ProblemKind::Contradiction, origin.clone(), what, allowed);
    }

    fn warn(&mut self, origin: &Origin, what: String, allowed: &str) {
        self.report.add(ProblemKind::Doubtful, origin.clone(), what, allowed);
    }

    fn exports(&mut self) {
        let effective = self.effective;
        let is_redirector = effective.cluster.role.redirects() && !effective.cluster.looks_itself();
        if *effective.proxy.enabled {
            self.cache();
        }
        if is_redirector || *effective.proxy.enabled {
            return; // Its exports are those of its servers, or of its origin.
        }
        let root = &effective.storage.local_root;
        if let Some(path) = &root.value
            && let Err(error) = self.disk.look(path)
        {
            let what = format!("oss.localroot: {}: {}", path.display(), describe(&error));
            return self.wrong(&root.origin, what, "name an existing directory");
        }
        for export in &effective.storage.exports {
            let path = effective.storage.local_path(&export.prefix);
            self.export(export, &path);
        }
        for rule in &effective.storage.name_rules {
            let path = effective.storage.stored_path(&rule.to);
            let name = format!("scalla.namerule {}: {}", rule.from, path.display());
            match self.disk.look(&path) {
                Ok(PathAccess::Directory { .. }) => {}
                Ok(PathAccess::Other) => self.wrong(&rule.origin, format!("{name} is not a directory"), ""),
                Err(error) => {
                    self.wrong(&rule.origin, format!("{name}: {}", describe(&error)), "create it");
                }
            }
            if !self.touches_an_export(&rule.from) {
                self.warn(&rule.origin, format!("scalla.namerule: {} is not exported", rule.from), "");
            }
        }
    }

    /// Checks the directory of the disk cache.
    fn cache(&mut self) {
        let root = &self.effective.storage.local_root;
        let Some(path) = root.value.as_ref().filter(|_| *self.effective.proxy.cache.enabled) else { return };
        let problem = match self.disk.look(path) {
            Ok(PathAccess::Directory { readable: true, writable: true }) => return,
            Ok(PathAccess::Directory { .. }) => "cannot be read and written".to_owned(),
            Ok(PathAccess::Other) => "is not a directory".to_owned(),
            Err(error) => describe(&error).to_string(),
        };
        let what = format!("oss.localroot: the directory of the cache, {}: {problem}", path.display());
        self.wrong(&root.origin, what, "name an existing directory of the server's user");
    }

    fn export(&mut self, export: &Export, path: &Path) {
        let name = format!("all.export {}: {}", export.prefix, path.display());
        let origin = &export.origin;
        match self.disk.look(path) {
            Err(error) => self.wrong(origin, format!("{name}: {}", describe(&error)), "create it"),
            Ok(PathAccess::Other) => self.wrong(origin, format!("{name} is not a directory"), ""),
            Ok(PathAccess::Directory { readable: false, .. }) => {
                self.wrong(origin, format!("{name} cannot be read"), "give the server's user access");
            }
            Ok(PathAccess::Directory { writable: false, .. })
                if !export.attributes.read_only && !self.effective.cluster.role.redirects() =>
            {
                let what = format!("{name} cannot be written");
                self.warn(origin, what, "give the server's user access, or export it r/o");
            }
            Ok(PathAccess::Directory { .. }) => {}
        }
    }

    /// Checks that the copy program exists, and that its options are not set without it.
    fn copies(&mut self) {
        let effective = self.effective;
        let setting = &effective.logical.third_party;
        let Some(copies) = &setting.value else { return };
        match &copies.program {
            Some(program) => {
                if let Err(error) = self.disk.look(&program.path) {
                    let what = format!("ofs.tpc pgm: {}: {}", program.path.display(), describe(&error));
                    self.wrong(
                        &setting.origin,
                        what,
                        "name an existing program, or omit pgm to use the built-in client",
                    );
                }
            }
            None if copies.echo || copies.scan != CopyScan::All => {
                let what =
                    "ofs.tpc: echo and scan apply to the output of a program, but pgm is not set".to_owned();
                self.warn(&setting.origin, what, "omit them, or name a program with pgm");
            }
            None => {}
        }
        self.copy_rules(copies, &setting.origin);
    }

    /// Checks that some client or destination can fit each rule about copies.
    fn copy_rules(&mut self, copies: &ThirdPartyCopy, origin: &Origin) {
        let security = &self.effective.security;
        let is_offered = |protocol: &str| {
            let mut offered = security.protocols.iter().filter(|_| *security.enabled);
            offered.any(|setting| setting.id() == protocol)
        };
        for CopyRequire { protocol, .. } in &copies.require {
            if protocol != AuthProtocol::HOST_ID && !is_offered(protocol) {
                let what = format!("ofs.tpc require {protocol}: no client can log in by it here");
                self.warn(origin, what, "configure the protocol by sec.protocol, or name another one");
            }
        }
        let attribute = copies.allow.iter().find_map(|rule| rule.attributes.first());
        if let Some((attribute, _)) = attribute.filter(|_| !*security.enabled) {
            let what = format!("ofs.tpc allow {}: clients have it only after a login", attribute.word());
            self.warn(origin, what, "configure xrootd.seclib and sec.protocol, or allow a host");
        }
    }

    /// Checks that the program for the identities of clients exists.
    fn entity_program(&mut self) {
        let setting = &self.effective.security.entity_program;
        let Some(program) = &setting.value else { return };
        if let Err(error) = self.disk.look(&program.path) {
            let what = format!("sec.entityprogram: {}: {}", program.path.display(), describe(&error));
            self.wrong(&setting.origin, what, "name an existing program");
        }
    }

    /// Checks directories that the server creates if they are missing.
    fn directories(&mut self) {
        let effective = self.effective;
        let process = &effective.process;
        let mut directories: Vec<(&str, &Origin, PathBuf)> = vec![
            ("all.adminpath", &process.admin_path.origin, effective.admin_directory()),
            ("all.pidpath", &process.pid_path.origin, process.pid_path.value.clone()),
        ];
        if let Some(home) = &process.home_path.value {
            directories.push(("xrd.homepath", &process.home_path.origin, home.path.clone()));
        }
        if let Some(directory) = effective.checkpoint_directory() {
            directories.push(("ofs.chkpnt", &effective.logical.checkpoint.origin, directory));
        }
        if effective.logical.persist.mode != PersistMode::Off {
            directories.push((
                "ofs.persist",
                &effective.logical.persist.origin,
                effective.persist_directory(),
            ));
        }
        for (directive, origin, directory) in directories {
            let existing = directory.ancestors().find_map(|path| match self.disk.look(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                look => Some((path, look)),
            });
            let Some((path, look)) = existing else { continue };
            let why = match look {
                Ok(PathAccess::Directory { writable: true, .. }) => continue,
                Ok(PathAccess::Directory { .. }) => "cannot be written".to_owned(),
                Ok(PathAccess::Other) => "is not a directory".to_owned(),
                Err(error) => format!("cannot be used: {}", describe(&error)),
            };
            let what = if path == directory {
                format!("{directive}: {} {why}", directory.display())
            } else {
                format!("{directive}: {} cannot be created: {} {why}", directory.display(), path.display())
            };
            self.wrong(origin, what, "give the server's user access, or name another directory");
        }
    }

    /// Exports that migrate need a program that copies, and files that the server may read.
    fn migration(&mut self) {
        let effective = self.effective;
        if effective.cluster.role.redirects() || *effective.proxy.enabled {
            return;
        }
        for export in effective.storage.exports.iter().filter(|export| export.attributes.migrate) {
            let name = &export.prefix;
            if !effective.residency.has_migration_program() {
                let what = format!("all.export {name} mig: there is no program that copies files out");
                self.wrong(&export.origin, what, "set frm.xfr.copycmd out, or remove mig");
            } else if *effective.multi_user.enabled {
                let what = format!("all.export {name} mig: files of other users cannot be migrated yet");
                self.wrong(&export.origin, what, "remove mig, or multi-user");
            } else if effective.process.admin_path.origin.is_default()
                && effective.residency.directory.is_none()
            {
                let what = format!("all.export {name} mig: the queue of transfers would be in /tmp/frm");
                self.wrong(&export.origin, what, "a reboot loses it; set all.adminpath or frm.xfr.qcheck");
            }
            if export.attributes.stage
                && effective.residency.has_copy_program()
                && effective.residency.catalog.is_none()
            {
                let what =
                    format!("all.export {name} mig stage: files that clients remove or rename come back");
                let remedy = "removals and renames do not reach mass storage; \
                    set oss.rsscmd, use nostage, or remove its copies by hand";
                self.warn(&export.origin, what, remedy);
            }
        }
    }

    /// Exports that purge need a policy, and a way back for their files. Policies need spaces.
    fn purging(&mut self) {
        let effective = self.effective;
        let has_no_policy = effective.residency.purge_rules().all(|rule| rule.origin.is_default());
        let purges = effective.residency.purge_rules().any(|rule| rule.free.is_some());
        if effective.cluster.role.redirects() {
            return;
        }
        for (space, rule) in &effective.residency.purge_spaces {
            if space != "public" && !effective.storage.spaces.iter().any(|one| one.name == *space) {
                let what = format!("frm.purge.policy {space}: there is no such space");
                self.warn(&rule.origin, what, "name a space of oss.space, public, or * for all");
            }
        }
        if !purges && !has_no_policy {
            return;
        }
        for export in effective.storage.exports.iter().filter(|export| export.attributes.purge) {
            let name = &export.prefix;
            if has_no_policy {
                let what = format!("all.export {name} purge: nothing is purged without frm.purge.policy");
                self.warn(&export.origin, what, "write frm.purge.policy, or remove purge");
            } else if *effective.multi_user.enabled {
                let what = format!("all.export {name} purge: files of other users are not purged");
                self.warn(&export.origin, what, "remove purge, or multi-user");
            } else if !export.attributes.stage || !effective.residency.has_copy_program() {
                let what = format!("all.export {name} purge: a purged file cannot come back");
                self.warn(&export.origin, what, "add the option stage, and set frm.xfr.copycmd in");
            }
        }
    }

    fn spaces(&mut self) {
        let effective = self.effective;
        if effective.cluster.role.redirects() || *effective.proxy.enabled {
            return;
        }
        for setting in &effective.storage.spaces {
            let mut path = setting.path.clone();
            if setting.wildcard
                && let Some(parent) =
                    path.parent().filter(|_| !path.as_os_str().as_encoded_bytes().ends_with(b"/"))
            {
                path = parent.to_path_buf();
            }
            let optional = setting.mount_check.as_ref().is_some_and(|check| check.optional);
            let why = match self.disk.look(&path) {
                Ok(PathAccess::Directory { .. }) => continue,
                Ok(PathAccess::Other) => "not a directory".to_owned(),
                Err(error) => describe(&error).to_string(),
            };
            let what = format!("oss.space {}: {}: {why}", setting.name, path.display());
            if optional {
                self.warn(&setting.origin, what, "the space starts without it");
            } else {
                self.wrong(&setting.origin, what, "create it, or mount it");
            }
        }
        let accounting = &effective.storage.accounting;
        if let Some(log) = &accounting.log
            && !matches!(self.disk.look(&log.directory), Ok(PathAccess::Directory { .. }))
        {
            let what = format!("oss.usage log {}: not a directory", log.directory.display());
            self.wrong(&accounting.origin, what, "create it");
        }
        for rule in &effective.storage.space_rules {
            if rule.name != "public" && !effective.storage.spaces.iter().any(|space| space.name == rule.name)
            {
                let what = format!("oss.space: there is no space '{}'", rule.name);
                self.wrong(&rule.origin, what, "define it with oss.space name path");
            }
            let outside: Vec<_> =
                rule.prefixes.iter().filter(|prefix| !self.touches_an_export(prefix)).collect();
            for prefix in outside {
                let what = format!("oss.space {}: {prefix} is not exported", rule.name);
                self.warn(&rule.origin, what, "");
            }
        }
    }

    /// Reports whether files under `prefix` are reachable through an export.
    fn touches_an_export(&self, prefix: &str) -> bool {
        let inside = format!("{}/", prefix.trim_end_matches('/'));
        let exports = &self.effective.storage.exports;
        exports.iter().any(|export| export.covers(prefix) || export.prefix.starts_with(&inside))
    }

    /// Checks values that contradict each other.
    fn check_conflicts(&mut self) {
        let effective = self.effective;
        let persist = &effective.logical.persist;
        if persist.mode == PersistMode::Auto
            && !effective.cluster.role.redirects()
            && effective.storage.exports.iter().all(|export| export.attributes.read_only)
        {
            let what = "ofs.persist auto: every export is read-only".to_owned();
            self.warn(&persist.origin, what, "no file can be created");
        }
        let checkpoint = &effective.logical.checkpoint;
        if checkpoint.mode == CheckpointMode::Enabled
            && effective.checkpoint_directory().is_some_and(|directory| directory.starts_with("/tmp"))
        {
            let what = "ofs.chkpnt enable: the checkpoints are under /tmp".to_owned();
            self.warn(&checkpoint.origin, what, "a reboot may lose them; name another directory");
        }
        if !*effective.network.resolve_names {
            let by_name = |pattern: &str| pattern.contains('*') && !is_address(pattern);
            for pattern in effective.network.allow.iter().filter(|pattern| by_name(pattern.as_str())) {
                let what = format!("xrd.allow host {}: names are not looked up", pattern.as_str());
                self.warn(&pattern.origin, what, "remove xrd.network nodnr, or name hosts or addresses");
            }
        }
        for redirect in &effective.protocol.redirects {
            if let RedirectWhen::Paths(paths) | RedirectWhen::Missing(paths) = &redirect.when {
                let outside: Vec<_> = paths.iter().filter(|path| !self.touches_an_export(path)).collect();
                for path in outside {
                    let what = format!("xrootd.redirect: {path} is not exported");
                    self.warn(&redirect.origin, what, "");
                }
            }
        }
        self.admin_directory_is_private();
    }

    /// Checks the managers that a role needs, and ports that are used twice.
    fn cluster(&mut self) {
        let effective = self.effective;
        let cluster = &effective.cluster;
        let role = &cluster.role;
        if role.value == NodeRole::Supervisor && cluster.managers.is_empty() {
            let what = format!("all.role {}: no manager is configured", cluster.role_name());
            let kind = if cluster.of_proxies { "proxy " } else { "" };
            self.wrong(&role.origin, what, &format!("name it: all.manager {kind}host:port"));
        }
        if role.value == NodeRole::Server && cluster.managers.is_empty() && !cluster.meta_managers.is_empty()
        {
            let what = "all.manager meta applies to managers; this server is standalone".to_owned();
            if let Some(meta) = cluster.meta_managers.first() {
                self.warn(&meta.origin, what, "name its manager: all.manager host:port");
            }
        }
        let own = match role.value {
            NodeRole::Supervisor => Some((cluster.supervisor_port.value, &cluster.supervisor_port.origin)),
            NodeRole::Server => None,
            NodeRole::Manager | NodeRole::MetaManager => {
                cluster.port.value.map(|port| (port, &cluster.port.origin))
            }
        };
        if let Some((Port::Number(number), origin)) = own {
            let xroot = &effective.network.port;
            let http = effective.http.ports.iter().find(|port| port.number == Some(number));
            let clients = match xroot.value == Port::Number(number) {
                true => Some(&xroot.origin),
                false => http.map(|port| &port.origin),
            };
            if let Some(clients) = clients {
                let what = format!("port {number} is used for clients ({clients}) and for nodes");
                self.wrong(origin, what, "give one of them another port");
            }
        }
        self.check_cluster_key();
    }

    /// Rules of flows need numbers, and their reports a collector.
    fn packet_marking(&mut self) {
        let marking = &self.effective.monitoring.marking;
        let Some(settings) = &marking.value else { return };
        if settings.has_rules() && settings.registry.is_none() {
            let what = "xrootd.pmark: map2exp and map2act need the numbers of experiments".to_owned();
            let remedy = "name the file with them: defsfile /file";
            match settings.needs_registry {
                true => return self.wrong(&marking.origin, what, remedy),
                false => self.warn(&marking.origin, what, remedy),
            }
        }
        if !settings.is_silent && !settings.is_in_force() {
            let what = "xrootd.pmark: no flows are reported, because there is no collector".to_owned();
            self.warn(&marking.origin, what, "name it: ffdest host:port");
        }
    }

    /// The file stream needs an interval and a collector.
    fn monitoring(&mut self) {
        self.packet_marking();
        let detailed = &self.effective.monitoring.detailed;
        let Some(settings) = &detailed.value else { return };
        let is_on = !settings.files.interval.is_zero();
        let is_wanted = settings.events().has(MonitorEvent::FileStream);
        if is_wanted && !is_on {
            let what = "xrootd.monitor: dest fstat, but no packets of it are sent".to_owned();
            self.warn(&detailed.origin, what, "set their interval, as in: fstat 60");
        }
        if is_on && !is_wanted {
            let what = "xrootd.monitor: fstat is set, but no collector gets it".to_owned();
            self.warn(&detailed.origin, what, "name the event: dest fstat host:port");
        }
    }

    /// Checks that the key table of the cluster exists, and that it protects something.
    fn check_cluster_key(&mut self) {
        let cluster = &self.effective.cluster;
        let Some(key) = &cluster.key.value else { return };
        let origin = &cluster.key.origin;
        if !cluster.is_cluster_node() {
            let what = "scalla.clusterkey: this server is in no cluster".to_owned();
            return self.warn(origin, what, "name its manager: all.manager host:port");
        }
        if key.exempt.iter().any(|pattern| pattern.as_str() == "*") {
            let what = "scalla.clusterkey: 'except *' lets every host join without the key".to_owned();
            self.warn(origin, what, "name the hosts of the nodes that cannot authenticate");
        }
        if let Err(error) = self.disk.look(&key.keytab) {
            let what = format!("scalla.clusterkey: {}: {}", key.keytab.display(), describe(&error));
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => {
                    "make it with xrdsssadmin -k cluster add PATH, and copy it to each node"
                }
                _ => "give the server's user access",
            };
            self.wrong(origin, what, remedy);
        }
    }

    /// Warns of an admin directory inside an export, because clients could see state and sockets of
    /// the server. It is only a warning since XRootD's defaults have it so, and there is none for
    /// the defaults.
    fn admin_directory_is_private(&mut self) {
        let effective = self.effective;
        if effective.cluster.role.redirects() || *effective.proxy.enabled {
            return;
        }
        let origin = &effective.process.admin_path.origin;
        let directory = effective.admin_directory();
        let storage = &effective.storage;
        let rules = storage.name_rules.iter();
        let targets = rules.map(|rule| (&rule.from, storage.stored_path(&rule.to), &rule.origin));
        let exports = storage.exports.iter();
        let exports =
            exports.map(|export| (&export.prefix, storage.local_path(&export.prefix), &export.origin));
        for (prefix, path, origin_of_path) in exports.chain(targets) {
            let chosen = !(origin.is_default() && origin_of_path.is_default());
            if chosen && directory.starts_with(path) {
                let what = format!("all.adminpath: {} is inside the export {prefix}", directory.display());
                return self.warn(origin, what, "clients can see it; name another directory");
            }
        }
    }
}

/// Reports whether a pattern with `*` can match an address.
fn is_address(pattern: &str) -> bool {
    pattern.chars().all(|c| c.is_ascii_hexdigit() || ".:*[]".contains(c))
}
