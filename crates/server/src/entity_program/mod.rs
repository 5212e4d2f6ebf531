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
use auth::{
    CertificateInForce, Entity, ExportedFiles, FileRefresh, LoginPeer, LoginWaker, RefusedLogin, ServerLogin,
    ServerProtocol, ServerStep, SignatureCipher, StepCost,
};
use base::errno_text;
use config::{Effective, EntityProgram};
use mapper::{EntityMapper, EntityVariables};
use rustix::fs::{Access, access};
use shared_run::SharedRun;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Lets a program complete the identities of clients of these protocols.
///
/// # Errors
/// [`StartError::Security`]: the program cannot be executed.
pub(crate) fn with_program(
    protocols: Vec<Arc<dyn ServerProtocol>>,
    program: &EntityProgram,
) -> Result<Vec<Arc<dyn ServerProtocol>>, StartError> {
    access(&program.path, Access::EXEC_OK).map_err(|error| {
        let (shown, reason) = (program.path.display(), errno_text(&error.into()));
        StartError::Security(format!("sec.entityprogram: {shown} cannot be executed: {reason}"))
    })?;
    let mapper = Arc::new(EntityMapper::new(program));
    let mapped =
        |inner| Arc::new(MappedProtocol { inner, mapper: mapper.clone() }) as Arc<dyn ServerProtocol>;
    Ok(protocols.into_iter().map(mapped).collect())
}

/// Returns the identity by `sec.entityprogram` of a client that has authenticated by a protocol, or the
/// reason why the client is refused; `None` if the configuration has no program. Runs the program.
#[must_use]
pub fn entity_by_program(
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

/// A protocol whose identities a program completes.
struct MappedProtocol {
    inner: Arc<dyn ServerProtocol>,
    mapper: Arc<EntityMapper>,
}

impl ServerProtocol for MappedProtocol {
    fn id(&self) -> &'static str {
        self.inner.id()
    }

    fn parameters(&self) -> String {
        self.inner.parameters()
    }

    fn credential_bytes_min(&self) -> usize {
        self.inner.credential_bytes_min()
    }

    fn needs_tls(&self) -> bool {
        self.inner.needs_tls()
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(MappedLogin {
            protocol: self.inner.id(),
            inner: self.inner.begin(peer),
            mapper: self.mapper.clone(),
            waiting: None,
        })
    }

    fn ready_at(&self) -> SystemTime {
        self.inner.ready_at()
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        self.inner.periodic_refreshes()
    }

    fn refresh(&self) -> Result<(), String> {
        self.inner.refresh()
    }

    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        self.inner.warnings(now, soon)
    }

    fn exported_files(&self) -> Option<&ExportedFiles> {
        self.inner.exported_files()
    }

    fn certificate(&self) -> Option<CertificateInForce> {
        self.inner.certificate()
    }

    fn state(&self) -> String {
        self.inner.state()
    }
}

/// An identity that waits for the program.
struct WaitingEntity {
    entity: Entity,
    run: Arc<SharedRun>,
}

/// An exchange whose identity a program completes.
struct MappedLogin {
    protocol: &'static str,
    inner: Box<dyn ServerLogin>,
    mapper: Arc<EntityMapper>,
    waiting: Option<WaitingEntity>,
}

impl ServerLogin for MappedLogin {
    fn cost(&self) -> StepCost {
        // The step that starts the program runs on the pool of logins even if that of the protocol is
        // cheap. On an event loop it would have no owner, and programs are shared out by owner.
        if self.waiting.is_some() { StepCost::Cheap } else { StepCost::Expensive }
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        let Some(WaitingEntity { entity, run }) = self.waiting.take() else {
            return match self.inner.step(credentials, now) {
                ServerStep::Done(entity) => self.start(entity),
                other => other,
            };
        };
        match run.result() {
            None => {
                self.waiting = Some(WaitingEntity { entity, run });
                ServerStep::Later
            }
            Some(Ok(names)) => ServerStep::Done(entity.renamed(names)),
            Some(Err(reason)) => self.refuse(&reason),
        }
    }

    fn wake_when_ready(&mut self, waker: LoginWaker) {
        match &self.waiting {
            Some(waiting) => waiting.run.wake_when_ready(waker),
            None => self.inner.wake_when_ready(waker),
        }
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.inner.signature_cipher()
    }
}

impl MappedLogin {
    /// Starts the program, or waits for a run for the same identity.
    fn start(&mut self, entity: Entity) -> ServerStep {
        let Some(run) = self.mapper.join_run(EntityVariables::of(&entity)) else {
            return self.refuse("too many clients wait for it");
        };
        self.waiting = Some(WaitingEntity { entity, run });
        ServerStep::Later
    }

    fn refuse(&self, reason: &str) -> ServerStep {
        ServerStep::Refused(RefusedLogin::new(self.protocol, refusal(&self.mapper.program, reason)))
    }
}

#[cfg(test)]
mod tests;
