//! Protocols whose identities this server completes: by a file of rules (`sec.entitymap`), then by a
//! program of the site (`sec.entityprogram`).

use crate::entity_program::{self, EntityMapper, ProgramRun};
use crate::error::StartError;
use auth::{
    CertificateInForce, Entity, EntityMap, ExportedFiles, FileRefresh, LoginPeer, LoginWaker, MappedClient,
    RefusedLogin, ServerLogin, ServerProtocol, ServerStep, SignatureCipher, StepCost,
};
use base::written_ip;
use config::{Effective, SecurityConfig};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Returns the protocols with the map and the program of the configuration, if it has them. Blocks.
///
/// # Errors
/// [`StartError::Security`]: the map cannot be used, or the program cannot be executed.
pub(crate) fn with_names(
    protocols: Vec<Arc<dyn ServerProtocol>>,
    security: &SecurityConfig,
) -> Result<Vec<Arc<dyn ServerProtocol>>, StartError> {
    let map = map(security)?.map(Arc::new);
    let mapper = security.entity_program.as_ref().map(entity_program::mapper).transpose()?;
    if map.is_none() && mapper.is_none() {
        return Ok(protocols);
    }
    let named = |(index, inner)| {
        let mapper = mapper.clone();
        let reads_map = index == 0;
        Arc::new(NamedProtocol { inner, map: map.clone(), reads_map, mapper }) as Arc<dyn ServerProtocol>
    };
    Ok(protocols.into_iter().enumerate().map(named).collect())
}

/// Reads the map of a configuration. Blocks.
///
/// # Errors
/// [`StartError::Security`].
pub(crate) fn map(security: &SecurityConfig) -> Result<Option<EntityMap>, StartError> {
    let configured = security.entity_map.as_ref().filter(|_| *security.enabled);
    let open = |map: &config::EntityMapFile| EntityMap::open(&map.path, map.refuses_others);
    let map = configured.map(open).transpose();
    map.map_err(|error| StartError::Security(format!("sec.entitymap: {error}")))
}

/// The identity that this server gives a client instead of that by its protocol.
#[derive(Debug)]
pub struct NamedEntity {
    /// The directives that gave it, with the line of the map, in this order.
    pub sources: Vec<String>,
    /// The identity, or the reason why the client is refused.
    pub entity: Result<Entity, String>,
}

/// Returns the identity of a client of a host that has authenticated by a protocol, as the map and the
/// program give it; `None` if the configuration has neither. Runs the program. Blocks.
///
/// # Errors
/// The reason why a server with this configuration does not start.
pub fn named_entity(
    effective: &Effective,
    entity: &Entity,
    protocol: &str,
    host: &str,
) -> Result<Option<NamedEntity>, StartError> {
    let mut sources = Vec::new();
    let mut named = entity.clone();
    let map = map(&effective.security)?;
    if let Some(map) = &map {
        let client = MappedClient { entity, protocol, host, address: written_ip(host) };
        let outcome = map.apply(client);
        let file = map.path().display();
        match (outcome.entity, outcome.line) {
            (Err(reason), _) => {
                return Ok(Some(NamedEntity { sources, entity: Err(map_refusal(&reason)) }));
            }
            (Ok(entity), Some(line)) => {
                named = entity;
                sources.push(format!("sec.entitymap ({file}:{line})"));
            }
            (Ok(_), None) => sources.push(format!("sec.entitymap ({file}, which has no rule for it)")),
        }
    }
    let by_program = entity_program::entity_by_program(effective, &named, protocol);
    let entity = match by_program {
        None if map.is_none() => return Ok(None),
        None => Ok(named),
        Some(by_program) => {
            sources.push("sec.entityprogram".to_owned());
            by_program
        }
    };
    Ok(Some(NamedEntity { sources, entity }))
}

fn map_refusal(reason: &str) -> String {
    format!("{reason} (sec.entitymap)")
}

/// A protocol whose identities are completed.
struct NamedProtocol {
    inner: Arc<dyn ServerProtocol>,
    map: Option<Arc<EntityMap>>,
    /// The map is read again together with the files of this protocol, and not of another one.
    reads_map: bool,
    mapper: Option<Arc<EntityMapper>>,
}

impl NamedProtocol {
    /// Completes the identity of a login.
    fn named(&self, inner: Box<dyn ServerLogin>, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(NamedLogin {
            protocol: self.inner.id(),
            inner,
            host: peer.host.clone(),
            address: peer.address.ip(),
            map: self.map.clone(),
            mapper: self.mapper.clone(),
            waiting: None,
        })
    }

    fn map_to_read(&self) -> Option<&Arc<EntityMap>> {
        self.map.as_ref().filter(|_| self.reads_map)
    }
}

impl ServerProtocol for NamedProtocol {
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

    fn needs_host_name(&self) -> bool {
        self.inner.needs_host_name() || self.map.as_ref().is_some_and(|map| map.needs_host_name())
    }

    fn wants_host_name(&self) -> bool {
        self.inner.wants_host_name() || self.needs_host_name()
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        self.named(self.inner.begin(peer), peer)
    }

    fn begin_with_chain(&self, peer: &LoginPeer, chain: Arc<[Vec<u8>]>) -> Option<Box<dyn ServerLogin>> {
        Some(self.named(self.inner.begin_with_chain(peer, chain)?, peer))
    }

    fn ready_at(&self) -> SystemTime {
        self.inner.ready_at()
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        let map = self.map_to_read().map(EntityMap::periodic_refresh);
        self.inner.periodic_refreshes().into_iter().chain(map).collect()
    }

    fn refresh(&self) -> Result<(), String> {
        let map = self.map_to_read().map_or(Ok(()), |map| map.refresh());
        let failures: Vec<String> = [self.inner.refresh(), map].into_iter().filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
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
        let map = self.map_to_read().map(|map| map.state()).unwrap_or_default();
        let states = [self.inner.state(), map];
        states.into_iter().filter(|state| !state.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// An exchange whose identity is completed.
struct NamedLogin {
    protocol: &'static str,
    inner: Box<dyn ServerLogin>,
    host: String,
    address: IpAddr,
    map: Option<Arc<EntityMap>>,
    mapper: Option<Arc<EntityMapper>>,
    /// An identity that waits for the program.
    waiting: Option<ProgramRun>,
}

impl ServerLogin for NamedLogin {
    fn cost(&self) -> StepCost {
        // The step that starts the program runs on the pool of logins even if that of the protocol is
        // cheap. On an event loop it would have no owner, and programs are shared out by owner. A map can
        // have thousands of rules.
        if self.waiting.is_some() { StepCost::Cheap } else { StepCost::Expensive }
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        let Some(run) = self.waiting.take() else {
            return match self.inner.step(credentials, now) {
                ServerStep::Done(entity) => self.complete(entity),
                other => other,
            };
        };
        match run.result() {
            Ok(entity) => self.done(entity),
            Err(run) => {
                self.waiting = Some(run);
                ServerStep::Later
            }
        }
    }

    fn wake_when_ready(&mut self, waker: LoginWaker) {
        match &self.waiting {
            Some(waiting) => waiting.wake_when_ready(waker),
            None => self.inner.wake_when_ready(waker),
        }
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.inner.signature_cipher()
    }
}

impl NamedLogin {
    /// Applies the map, and starts the program or waits for a run for the same identity.
    fn complete(&mut self, entity: Entity) -> ServerStep {
        let entity = match self.mapped(entity) {
            Ok(entity) => entity,
            Err(reason) => return self.done(Err(map_refusal(&reason))),
        };
        let Some(mapper) = &self.mapper else { return ServerStep::Done(entity) };
        match mapper.start(entity) {
            Ok(run) => {
                self.waiting = Some(run);
                ServerStep::Later
            }
            Err(reason) => self.done(Err(reason)),
        }
    }

    fn mapped(&self, entity: Entity) -> Result<Entity, String> {
        let Some(map) = &self.map else { return Ok(entity) };
        let (host, address) = (self.host.as_str(), Some(self.address));
        let client = MappedClient { entity: &entity, protocol: &entity.protocol, host, address };
        let outcome = map.apply(client);
        if let (Some(line), Ok(mapped)) = (outcome.line, &outcome.entity) {
            let shown =
                |entity: &Entity| base::shown(entity.name.as_deref().unwrap_or("-").as_bytes()).to_string();
            let (from, to, file) = (shown(&entity), shown(mapped), map.path().display());
            tracing::debug!(target: "auth", "{file}:{line} (sec.entitymap): {from} ({}) is {to}", entity.protocol);
        }
        outcome.entity
    }

    fn done(&self, result: Result<Entity, String>) -> ServerStep {
        match result {
            Ok(entity) => ServerStep::Done(entity),
            Err(reason) => ServerStep::Refused(RefusedLogin::new(self.protocol, reason)),
        }
    }
}

#[cfg(test)]
mod tests;
