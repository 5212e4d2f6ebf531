//! Third-party copies: the server of the target fetches the file from the server of the source.
//!
//! The client opens the source for its status, then the target with the rendezvous key. It informs
//! the source which server will connect. The first sync starts the job or prepares it, and the
//! second one is answered once the job is done. With delegated credentials, the source admits the other
//! server as the user, and is not informed. Source: xroot protocol 5.2.0, section 4.3.

use std::fmt::Write;
use std::io::Read;
use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::ErrorCode;
use wire::xroot::codes::QueryType;

use super::Copier;
use super::checks::Checks;
use super::failure::{CopyError, Side};
use super::opening::{NotOpen, open_unless, remove_own, unless_stopped};
use super::options::{Against, CopyDelegation, CopyDone, CopyJob, CopyOptions, Watch};
use super::overwrite::{not_the_source_by_open, refused};
use super::place::Place;
use super::third_web::WebThirdParty;
use super::web_source::checksum;
use crate::client::Client;
use crate::credentials::{delegate_to, end_delegation};
use crate::delegation::{DELEGATION_KEY, takes_proxies};
use crate::failure::{Cause, Error};
use crate::file::{File, OpenWith};
use crate::identity::RemoteFileIdentity;
use crate::settings::Source;
use crate::url::Url;

/// Interval of progress queries.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// Maximum time for a server to stop the job and to remove the partial file.
const REMOVE_TIME: Duration = Duration::from_secs(5);
/// Bytes of a key: 24 hexadecimal digits.
const KEY_BYTES: usize = 12;

const NOT_AT_SERVERS: &str = "servers copy from each other only when both places are at servers";

/// The reason why servers did not copy.
pub(super) enum ThirdPartyRefusal {
    /// The servers do not support it. Nothing has happened, and the data can pass through this
    /// client.
    Cannot(CopyError),
    /// The copy failed.
    Failed(CopyError),
}

impl ThirdPartyRefusal {
    pub(super) fn into_error(self) -> CopyError {
        match self {
            Self::Cannot(error) | Self::Failed(error) => error,
        }
    }
}

/// The source and its status.
pub(super) struct ThirdPartySource {
    /// The URL at the server that has it.
    pub(super) at: Url,
    pub(super) size: u64,
    pub(super) identity: Option<RemoteFileIdentity>,
}

/// The copy of one file between two servers.
pub(super) struct ThirdPartyTransfer<'a> {
    pub(super) copier: &'a Copier,
    pub(super) job: &'a CopyJob,
    pub(super) options: &'a CopyOptions,
    pub(super) watch: &'a Watch,
}

impl ThirdPartyTransfer<'_> {
    /// Lets the server of the target fetch the file.
    pub(super) async fn run(&self) -> Result<CopyDone, ThirdPartyRefusal> {
        let Self { copier, job, options, watch } = *self;
        let (Place::Remote(source), Place::Remote(target)) = (&job.source, &job.target) else {
            return Err(ThirdPartyRefusal::Cannot(CopyError::Usage(NOT_AT_SERVERS.to_owned())));
        };
        if source.is_http() || target.is_http() {
            return Box::pin(WebThirdParty { transfer: self, source, target }.run()).await;
        }
        let settings = copier.client.settings();
        let (client, asking) = (steadfast(&copier.client, settings.cp_tpc_timeout), &copier.client);
        let limit = settings.cp_init_timeout.max(1);
        let end = Instant::now() + Duration::from_secs(limit);
        let stop = || self.stopped(end, limit);
        let asked = async {
            let seen = look(asking, source).await?;
            if let Some(text) = not_carried(&seen.at) {
                return Err(CopyError::Usage(format!("{}: {text}", seen.at)));
            }
            // This is checked before the target is created, because a refused open may leave an
            // empty file.
            let support = able(asking, target, Side::Target).await?;
            let offers = uses_delegation(options, support, target)?;
            if !offers {
                able(asking, &seen.at, Side::Source).await?;
            }
            Ok((seen, key()?, offers))
        };
        let (seen, key, offers) = tokio::select! {
            asked = asked => asked.map_err(ThirdPartyRefusal::Cannot)?,
            error = stop() => return Err(ThirdPartyRefusal::Failed(error)),
        };
        if options.force {
            let identities = seen.identity.as_slice();
            let compared =
                not_the_source_by_open(copier, target, &job.source, identities, false, stop()).await;
            compared.map_err(ThirdPartyRefusal::Failed)?;
        }
        let (file, delegates) = self.opened(&client, &seen, (&key, offers), (end, limit)).await?;
        watch.begin(0, Some(seen.size));
        let key = (!delegates).then_some(key.as_str());
        if let Err(error) = unless_stopped(watch, meet(&client, &file, &seen, key, watch)).await {
            clean(&client, &file).await;
            return Err(ThirdPartyRefusal::Failed(error));
        }
        let (mut at, own) = (file.location(), file.identity());
        end_delegation(&mut at);
        let closed = file.close().await.map_err(CopyError::target);
        closed.map_err(ThirdPartyRefusal::Failed)?;
        let checksums = self.compared(&seen, &at, own.as_ref()).await.map_err(ThirdPartyRefusal::Failed)?;
        Ok(CopyDone { third_party: true, checksums, ..CopyDone::of(seen.size, seen.size) })
    }

    /// Waits until the copy is cancelled, or for the end of the time in which it must begin, whose limit
    /// is in seconds.
    async fn stopped(&self, end: Instant, limit: u64) -> CopyError {
        tokio::select! {
            biased;
            () = self.watch.cancelled() => CopyError::Cancelled,
            () = tokio::time::sleep_until(end) => {
                let target = &self.job.target;
                CopyError::target(Error::new("arrange the copy to", target, Cause::TimedOut(limit)))
            }
        }
    }

    /// Opens the target, and returns whether the copy uses delegated credentials. Behind a manager, only
    /// the server of the file declares that. It learns the kind of the copy from the open, so that the
    /// file is opened again if the kind changes.
    async fn opened(
        &self,
        client: &Client,
        seen: &ThirdPartySource,
        (key, mut offers): (&str, bool),
        (end, limit): (Instant, u64),
    ) -> Result<(File, bool), ThirdPartyRefusal> {
        let Self { copier, job, options, watch } = *self;
        let (Place::Remote(source), Place::Remote(target)) = (&job.source, &job.target) else {
            return Err(ThirdPartyRefusal::Cannot(CopyError::Usage(NOT_AT_SERVERS.to_owned())));
        };
        loop {
            let stop = self.stopped(end, limit);
            let file = open_target(client, (source, target), seen, (key, offers), options, stop).await?;
            let mut there = file.location();
            end_delegation(&mut there);
            let asked = async {
                let support = able(client, &there, Side::Target).await?;
                let delegates = offers && uses_delegation(options, support, &there)?;
                if offers && !delegates {
                    able(&copier.client, &seen.at, Side::Source).await?;
                }
                Ok(delegates)
            };
            match unless_stopped(watch, asked).await {
                Ok(delegates) if delegates == offers => return Ok((file, delegates)),
                Ok(delegates) => {
                    clean(client, &file).await;
                    offers = delegates;
                }
                Err(error) => {
                    clean(client, &file).await;
                    return Err(ThirdPartyRefusal::Cannot(error));
                }
            }
        }
    }

    /// Compares the checksums of both servers.
    pub(super) async fn compared(
        &self,
        seen: &ThirdPartySource,
        at: &Url,
        own: Option<&RemoteFileIdentity>,
    ) -> Result<Vec<(Place, crate::answers::FileChecksum)>, CopyError> {
        let Self { copier, job, options, .. } = *self;
        let has = copier.client.file_system(at).find(&at.path).await.map_err(CopyError::target)?;
        let has = has.map_or(0, |stat| stat.size);
        if has != seen.size {
            let place = job.target.to_string();
            return Err(CopyError::Short { place, at: has, size: seen.size });
        }
        let mut told = Vec::new();
        for wish in Checks::wishes(copier, Some(&seen.at), options).await {
            let (algorithm, against) = wish;
            let ask = async |url: &Url| checksum(&copier.client, url, algorithm).await;
            let (of_source, of_target) = match against {
                Against::PrintSource => (Some(ask(&seen.at).await.map_err(CopyError::source)?), None),
                Against::EachOther => {
                    let both = tokio::join!(ask(&seen.at), ask(at));
                    (Some(both.0.map_err(CopyError::source)?), Some(both.1.map_err(CopyError::target)?))
                }
                Against::PrintTarget | Against::Value(_) => {
                    (None, Some(ask(at).await.map_err(CopyError::target)?))
                }
            };
            let expected = match &against {
                Against::Value(value) => Some(value.clone()),
                Against::EachOther => of_source.as_ref().map(|sum| sum.value.clone()),
                _ => None,
            };
            if let (Some(expected), Some(found)) = (expected, &of_target) {
                let compared = super::checks::compare(&job.target, algorithm, found, &expected);
                if let Err(error) = compared {
                    if !at.is_http() {
                        remove_own(&copier.client, at, own).await;
                    }
                    return Err(error);
                }
            }
            match (of_target, of_source) {
                (Some(sum), _) => told.push((job.target.clone(), sum)),
                (None, Some(sum)) => told.push((job.source.clone(), sum)),
                _ => {}
            }
        }
        Ok(told)
    }
}

/// Returns a client that does not reopen files after their connection is lost, because the
/// rendezvous would be lost with it. The timeout of a reply is the maximum duration of the copy,
/// `seconds`.
fn steadfast(client: &Client, seconds: u64) -> Client {
    let mut settings = client.settings().clone();
    for name in ["ReadRecovery", "WriteRecovery"] {
        // The names and values are valid.
        settings.set(name, "false", Source::Option).ok();
    }
    if !settings.is_set("RequestTimeout") {
        settings.set("RequestTimeout", &seconds.to_string(), Source::Option).ok();
    }
    client.with_settings(settings)
}

/// Returns the reason for which the target's server cannot fetch a source. It receives the path as
/// an element of cgi, which is text and ends at a `&`, and the elements of the source's cgi
/// separated by tabs.
fn not_carried(source: &Url) -> Option<&'static str> {
    if source.path.contains('&') {
        Some("a copy between servers cannot name a source with `&` in its path")
    } else if source.path.contains(|c| base::byte_of(c).is_some()) {
        Some("a copy between servers cannot name a source whose path is not UTF-8")
    } else if source.cgi.iter().any(|(key, value)| key.contains('\t') || value.contains('\t')) {
        Some("a copy between servers cannot pass on parameters with a tab")
    } else {
        None
    }
}

fn with_cgi(url: &Url, elements: &str) -> Url {
    let mut url = url.clone();
    url.merge_cgi(elements);
    url
}

async fn look(client: &Client, source: &Url) -> Result<ThirdPartySource, CopyError> {
    let url = with_cgi(source, "tpc.stage=placement");
    let file = client.open(&url, &OpenWith::read()).await.map_err(CopyError::source)?;
    let stat = file.known_stat().await.map_err(CopyError::source)?;
    let (mut at, identity) = (file.location(), file.identity());
    at.cgi.remove("tpc.stage");
    file.close().await.ok();
    Ok(ThirdPartySource { at, size: stat.size, identity })
}

/// Opens the target. The server learns from `delegates` which kind of copy follows.
async fn open_target(
    client: &Client,
    (source, target): (&Url, &Url),
    seen: &ThirdPartySource,
    (key, delegates): (&str, bool),
    options: &CopyOptions,
    stop: impl Future<Output = CopyError>,
) -> Result<File, ThirdPartyRefusal> {
    let place = seen.at.authority();
    let (lfn, scheme) = (&seen.at.path, seen.at.scheme.name());
    let mut cgi = format!(
        "tpc.dlg={}&tpc.dlgon={}&tpc.key={key}&tpc.lfn={lfn}&tpc.spr={scheme}&tpc.src={place}&tpc.stage=copy&tpc.tpr={}",
        source.authority(),
        u8::from(delegates),
        target.scheme.name()
    );
    let streams = client.settings().sub_streams_per_channel.saturating_sub(1).min(15);
    if streams > 0 {
        // Writing to a string cannot fail.
        write!(cgi, "&tpc.str={streams}").ok();
    }
    let own: Vec<String> = seen.at.cgi.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !own.is_empty() {
        write!(cgi, "&tpc.scgi={}", own.join("\t")).ok();
    }
    let mut with = if options.force { OpenWith::overwrite() } else { OpenWith::create() };
    with = with.make_path().expected_size(seen.size);
    if options.persist_on_successful_close {
        with = with.persist_on_successful_close();
    }
    let mut url = with_cgi(target, &cgi);
    if delegates {
        delegate_to(&mut url);
    }
    match open_unless(client, &url, &with, stop).await {
        Ok(file) => Ok(file),
        Err(NotOpen::Refused(error)) if cannot(&error) => {
            Err(ThirdPartyRefusal::Cannot(CopyError::target(error)))
        }
        Err(NotOpen::Refused(error)) => Err(ThirdPartyRefusal::Failed(refused(target, error))),
        Err(NotOpen::Stopped(why, file)) => {
            if let Some(file) = file {
                clean(client, &file).await;
            }
            Err(ThirdPartyRefusal::Failed(why))
        }
    }
}

/// Reports whether an error means that the server does not support third-party copies.
fn cannot(error: &Error) -> bool {
    matches!(error.code(), Some(ErrorCode::UNSUPPORTED | ErrorCode::NOT_AUTHORIZED | ErrorCode::TLS_REQUIRED))
}

/// The support that a server declares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeclaredSupport {
    /// It copies with the permission of a client.
    Copies,
    /// It also copies with delegated credentials.
    Delegates,
    /// It is a manager, which cannot declare it for the servers behind it.
    Unknown,
}

/// Reports whether a copy to the server of a target uses delegated credentials, as far as its support
/// is known.
fn uses_delegation(options: &CopyOptions, support: DeclaredSupport, at: &Url) -> Result<bool, CopyError> {
    match (options.delegation, support) {
        (CopyDelegation::Never, _) => Ok(false),
        (_, DeclaredSupport::Delegates | DeclaredSupport::Unknown) => Ok(true),
        (CopyDelegation::Supported, DeclaredSupport::Copies) => Ok(false),
        (CopyDelegation::Required, DeclaredSupport::Copies) => {
            let server = at.authority();
            let text = format!(
                "{server} (target) does not copy with delegated credentials; use --tpc only, or --tpc first"
            );
            Err(CopyError::Usage(text))
        }
    }
}

/// Checks that a server declares support.
async fn able(client: &Client, url: &Url, side: Side) -> Result<DeclaredSupport, CopyError> {
    let refused = |error| CopyError::Remote { side, error };
    if client.channel(url).await.map_err(refused)?.is_manager() {
        return Ok(DeclaredSupport::Unknown);
    }
    let says = client.file_system(url).config(&["tpc", DELEGATION_KEY]).await.map_err(refused)?;
    let mut says = says.into_iter().map(Option::unwrap_or_default);
    let (copies, delegates) = (says.next().unwrap_or_default(), says.next().unwrap_or_default());
    if copies.trim_start().bytes().next().is_some_and(|byte| byte.is_ascii_digit() && byte != b'0') {
        return Ok(if takes_proxies(&delegates) {
            DeclaredSupport::Delegates
        } else {
            DeclaredSupport::Copies
        });
    }
    let server = url.authority();
    let text = format!(
        "{server} ({side}) does not copy from server to server; leave --tpc away, or use --tpc first"
    );
    Err(CopyError::Usage(text))
}

/// Introduces the servers to each other by a key, starts the job, and waits for its end.
///
/// XRootD destinations start at the first sync. If the fetching server and the permission of this
/// client reach an XRootD source at the same moment, it may not match them. Both then wait for
/// their timeout. The permission is therefore answered by the source before the other server can
/// connect.
async fn meet(
    client: &Client,
    file: &File,
    seen: &ThirdPartySource,
    key: Option<&str>,
    watch: &Watch,
) -> Result<(), CopyError> {
    // The open handle is the permission, so it is held until the end.
    let permission = match key {
        Some(key) => {
            let who = file.location().host;
            let url = with_cgi(&seen.at, &format!("tpc.dst={who}&tpc.key={key}&tpc.stage=copy"));
            Some(client.open(&url, &OpenWith::read()).await.map_err(CopyError::source)?)
        }
        None => None,
    };
    let looking = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(LOOK_TIME).await;
            if let Ok(stat) = file.stat().await {
                let now = stat.size.min(seen.size);
                watch.advance(now.saturating_sub(before), Some(seen.size));
                before = now.max(before);
            }
        }
    };
    let copied = async {
        file.sync().await?;
        file.sync().await
    };
    let result = tokio::select! {
        result = copied => result.map_err(CopyError::target),
        () = looking => Ok(()),
    };
    if let Some(permission) = permission {
        permission.close().await.ok();
    }
    result
}

/// Stops the job, and removes the partial file.
async fn clean(client: &Client, file: &File) {
    let work = async {
        file.query(QueryType::OPAQUG, b"ofs.tpc cancel\0").await.ok();
        let at = file.location();
        file.close().await.ok();
        remove_own(client, &at, file.identity().as_ref()).await;
    };
    tokio::time::timeout(REMOVE_TIME, work).await.ok();
}

/// Generates an unpredictable key.
fn key() -> Result<String, CopyError> {
    let mut bytes = [0; KEY_BYTES];
    let source = "/dev/urandom";
    let read = std::fs::File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| CopyError::local("read", source, &error))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    }))
}
