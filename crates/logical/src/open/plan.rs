//! Checks the request of an open before the storage is accessed, and the result: an [`OpenPlan`].

use super::replacement::ReplacedFile;
use crate::config::ModeRules;
use crate::errno::{self, unable};
use crate::exports::{self, ExportTable};
use crate::file_services::FileServices;
use crate::lookup;
use crate::open_file::OpenFileState;
use crate::third_party::{self, CopyRole, PullRequest, RunningCopy, ThirdPartyCopies};
use base::{Cgi, Error, ErrorKind, LogicalPath, Owner};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::{CreateMode, OpenMode, ParentCreation, StorageUser, WorkPlacement};
use vfs::{Caller, OpenRequest, Target};

/// Mode of missing parent directories, before the configured range is applied.
const PARENT_MODE: u32 = 0o755;

/// The components that opening uses.
pub(crate) struct OpenServices {
    pub(crate) creation_modes: ModeRules,
    /// Maximum wait that is sent to a client.
    pub(crate) delay_max: Duration,
    pub(crate) exports: Arc<ExportTable>,
    /// Third-party copies; empty if they are not offered.
    pub(crate) third_party: Arc<OnceLock<Arc<ThirdPartyCopies>>>,
    /// The components that open files use, and that opening uses too.
    pub(crate) services: Arc<FileServices>,
}

impl OpenServices {
    /// Returns the components with the rights of an account; `None` if the storage cannot act for
    /// users.
    pub(crate) fn for_user(&self, user: &Arc<StorageUser>) -> Option<Self> {
        Some(Self {
            creation_modes: self.creation_modes,
            delay_max: self.delay_max,
            exports: self.exports.clone(),
            third_party: self.third_party.clone(),
            services: Arc::new(self.services.for_user(user)?),
        })
    }
}

/// A checked open request.
pub(crate) struct OpenPlan {
    /// The path as the client wrote it, for error texts.
    pub(crate) path: LogicalPath,
    /// The path without a trailing `/`.
    pub(crate) plain: LogicalPath,
    pub(crate) request: OpenRequest,
    pub(crate) caller: Arc<Caller>,
    /// The session of the client.
    pub(super) owner: Owner,
    pub(crate) write: bool,
    pub(crate) creates: bool,
    pub(super) cgi: Cgi,
    pub(super) enforce_lock: bool,
    /// The client requested persist on successful close.
    pub(super) asks_persist: bool,
    /// The file whose place the new one takes when it is closed. `plain` is then the path beside it.
    pub(super) replaces: Option<ReplacedFile>,
    /// The third-party copy of which this file is the destination.
    pub(super) copy: Option<Arc<RunningCopy>>,
    /// Where the open is executed, if not in the pool of the path.
    pub(crate) place: Option<WorkPlacement>,
}

impl OpenPlan {
    pub(super) fn verb(&self) -> &'static str {
        if self.creates { "create" } else { "open" }
    }

    pub(super) fn unable(&self, error: std::io::Error) -> Error {
        Error::unable(self.verb(), &self.path, error)
    }

    /// Returns the error of an open that the backend rejected. It names a directory that must exist
    /// and does not. If the requested space does not exist, it names that and the spaces of this
    /// server.
    pub(super) fn refused(&self, opener: &OpenServices, error: std::io::Error) -> Error {
        let backend = opener.services.backend.as_ref();
        let existing_parent = self.request.existing_parent.as_ref().filter(|_| self.creates);
        if let Some(refused) = lookup::missing_parent(backend, existing_parent, &error) {
            return refused;
        }
        let wish = self.cgi.text("oss.cgroup").filter(|_| self.creates);
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        if let Some(wish) = wish.filter(|_| is_missing)
            && let Some(names) = backend.spaces_beside(&self.plain, wish)
        {
            let path = self.path.text();
            let text = format!(
                "Unable to create {path}; no space has the name {wish}; this server has {}",
                exports::list(names.iter().map(String::as_str))
            );
            return Error { kind: ErrorKind::NotFound, text, source: Some(error) };
        }
        self.unable(error)
    }

    /// Returns the options for creating the file; `None` if the open does not create.
    pub(super) fn create(&self, opener: &OpenServices) -> Result<Option<CreateMode>, Error> {
        let request = &self.request;
        let template = request.same_file_system_as.as_ref().or(request.duplicate_of.as_ref());
        let beside = match template.map(|file| OpenFileState::of(file.as_ref())) {
            Some(None) => return Err(unable(self.verb(), &self.path, errno::UNSUPPORTED)),
            Some(Some(open)) => Some(open.file.clone()),
            None => None,
        };
        Ok(self.creates.then(|| CreateMode {
            exclusive: request.new,
            mode: opener.creation_modes.of_file(request.mode),
            parents: request.make_path.then(|| ParentCreation {
                mode: opener.creation_modes.of_directory(PARENT_MODE),
                below: request.existing_parent.clone(),
            }),
            size_hint: self.cgi.text("oss.asize").and_then(base::parse_size),
            space: self.cgi.text("oss.cgroup").filter(|wish| !wish.is_empty()).map(str::to_owned),
            beside,
            at: self.place.clone(),
        }))
    }
}

/// Checks an open request, and determines its role in a third-party copy.
pub(super) fn plan(
    opener: &OpenServices,
    caller: &Arc<Caller>,
    target: &Target,
    request: OpenRequest,
    owner: Owner,
) -> Result<(OpenPlan, CopyRole), Error> {
    let path = target.path.clone();
    let export = opener.exports.find(&path, "Opening")?;
    let creates = request.new || request.delete;
    let write = creates || (request.write && !export.force_read_only);
    let mut plan = OpenPlan {
        plain: path.without_slash(),
        path,
        write,
        creates,
        caller: caller.clone(),
        owner,
        cgi: target.cgi.clone(),
        enforce_lock: export.lock && !request.force,
        asks_persist: request.posc || target.cgi.text("ofs.posc") == Some("1"),
        replaces: None,
        copy: None,
        place: None,
        request,
    };
    if write && export.is_read_only() {
        return Err(unable(plan.verb(), &plan.path, errno::READ_ONLY));
    }
    check_templates(&plan)?;
    let role = role(opener, &mut plan)?;
    Ok((plan, role))
}

/// Determines the role of an open in a third-party copy.
fn role(opener: &OpenServices, plan: &mut OpenPlan) -> Result<CopyRole, Error> {
    if !plan.cgi.has_prefix("tpc.") {
        return Ok(CopyRole::None);
    }
    let Some(third) = opener.third_party.get() else {
        // An open that only queries is ordinary: the client asks which features are offered and
        // copies in another way.
        if !third_party::is_copy(&plan.cgi) {
            return Ok(CopyRole::None);
        }
        return Err(third_party::refused(&plan.path, ErrorKind::Unsupported, "tpc not supported"));
    };
    let writes = plan.write || plan.request.write;
    let parsed = third_party::parse(&plan.path, &plan.cgi, writes, plan.creates, third.settings.object_ids);
    let role = parsed.map_err(|(kind, why)| third_party::refused(&plan.path, kind, why))?;
    if !third.settings.admits_path(&plan.plain) {
        return Err(third_party::refused(&plan.path, ErrorKind::NotAuthorized, "tpc not allowed for path"));
    }
    if let CopyRole::Pull(pull) = &role {
        third.check_client(&plan.path, &plan.caller)?;
        let access = third.settings.source_access(&plan.path, pull, &plan.caller);
        let access = access.map_err(|error| third.denied(error))?;
        let pull = PullRequest::clone(pull);
        plan.copy = Some(RunningCopy::new(third, pull, access, &plan.caller, plan.asks_persist));
        // The copy takes over the unfinished file of an earlier copy.
        plan.asks_persist = true;
    }
    Ok(role)
}

fn check_templates(plan: &OpenPlan) -> Result<(), Error> {
    let request = &plan.request;
    let wanted = request.duplicate_of.is_some() || request.same_file_system_as.is_some();
    if wanted && !request.new {
        let text = "file must be opened as a new file in order to colocate";
        return Err(Error::new(ErrorKind::ArgInvalid, text));
    }
    if request.duplicate_of.is_some() && !request.write {
        return Err(Error::new(ErrorKind::ArgInvalid, "cloned file is not being opened R/W"));
    }
    Ok(())
}

/// Returns the options with which the storage opens the file.
pub(super) fn how(
    opener: &OpenServices,
    plan: &OpenPlan,
    truncate: bool,
    mode: Option<u32>,
) -> Result<OpenMode, Error> {
    let create = plan.create(opener)?;
    let create = create.map(|create| CreateMode { mode: mode.unwrap_or(create.mode), ..create });
    Ok(OpenMode { write: plan.write, truncate, create })
}
