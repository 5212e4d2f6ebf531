//! `sec.entityprogram`: a program of the site that names the user and the groups of each client that
//! has authenticated, or refuses it.
//!
//! The identity is in the environment of the program. Each line of its output is `KEY=VALUE`. A name
//! that it does not write stays as the protocol gives it; organizations, roles and groups stay if it
//! writes none of them. Another status than 0, a malformed line, too much
//! output and too much time refuse the client, because an identity must be certain.
//!
//! Programs run on threads of their own, so that slow ones do not occupy those of other logins. The
//! login waits without a thread ([`ServerStep::Later`]). Logins of the same identity share a run.

mod mapper;
mod shared_run;

use crate::error::StartError;
use crate::process::User;
use auth::{Entity, LoginWaker};
use base::errno_text;
use config::{Effective, EntityProgram};
pub(crate) use mapper::EntityMapper;
use mapper::EntityVariables;
use rustix::fs::{Access, access};
use shared_run::SharedRun;
use std::sync::Arc;

/// Returns the runner of a program.
///
/// # Errors
/// [`StartError::Security`]: the program cannot be executed.
pub(crate) fn mapper(program: &EntityProgram) -> Result<Arc<EntityMapper>, StartError> {
    access(&program.path, Access::EXEC_OK).map_err(|error| {
        let (shown, reason) = (program.path.display(), errno_text(&error.into()));
        StartError::Security(format!("sec.entityprogram: {shown} cannot be executed: {reason}"))
    })?;
    Ok(Arc::new(EntityMapper::new(program)))
}

/// Returns the identity by `sec.entityprogram` of a client that has authenticated by a protocol, or the
/// reason why the client is refused; `None` if the configuration has no program. Runs the program.
pub(crate) fn entity_by_program(
    effective: &Effective,
    entity: &Entity,
    protocol: &str,
) -> Option<Result<Entity, String>> {
    let security = &effective.security;
    let program = security.entity_program.as_ref().filter(|_| *security.enabled)?;
    let by_user = || match User::is_root() {
        // A server that root starts has another user when it runs the program.
        true => Err("root does not run it; repeat the command as the user of the server".to_owned()),
        false => EntityMapper::new(program).run(&EntityVariables::of(entity).by_protocol(protocol)),
    };
    let named = by_user().map(|names| entity.clone().renamed(names));
    Some(named.map_err(|reason| refusal(program, &reason)))
}

/// Returns the reason of a refusal with the name of the program.
fn refusal(program: &EntityProgram, reason: &str) -> String {
    format!("{} (sec.entityprogram): {reason}", program.path.display())
}

impl EntityMapper {
    /// Starts the program for an identity, or waits for a run for the same identity.
    ///
    /// # Errors
    /// The reason of a refusal: too many clients wait.
    pub(crate) fn start(self: &Arc<Self>, entity: Entity) -> Result<ProgramRun, String> {
        match self.join_run(EntityVariables::of(&entity)) {
            Some(run) => Ok(ProgramRun { entity, run, mapper: self.clone() }),
            None => Err(refusal(&self.program, "too many clients wait for it")),
        }
    }
}

/// An identity that waits for the program.
pub(crate) struct ProgramRun {
    entity: Entity,
    run: Arc<SharedRun>,
    mapper: Arc<EntityMapper>,
}

impl ProgramRun {
    /// Returns the identity or the reason of a refusal.
    ///
    /// # Errors
    /// The run itself, if the program has not ended.
    pub(crate) fn result(self) -> Result<Result<Entity, String>, Self> {
        match self.run.result() {
            None => Err(self),
            Some(Ok(names)) => Ok(Ok(self.entity.renamed(names))),
            Some(Err(reason)) => Ok(Err(refusal(&self.mapper.program, &reason))),
        }
    }

    /// Calls a function when the program has ended, or now if it has.
    pub(crate) fn wake_when_ready(&self, waker: LoginWaker) {
        self.run.wake_when_ready(waker);
    }
}

#[cfg(test)]
mod tests;
