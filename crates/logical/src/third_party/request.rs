//! Parses the cgi of an open: the role of this server in a third-party copy, if any. Refuses
//! invalid cgi at the open, because later the client would take an empty file for a copy.

use base::{Cgi, ErrorKind, LogicalPath};
use digest::Algorithm;
use vfs::{OpenRequest, Target};

/// Maximum length of a key in bytes; stock clients send 24.
const KEY_BYTES_MAX: usize = 256;
/// Maximum length of the name of a host or client in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Maximum length of a path at the source in bytes.
const PATH_BYTES_MAX: usize = 8192;
/// Default port of a source.
const PORT: u16 = 1094;

/// The role of this server.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum CopyRole {
    /// An ordinary open, or one that only checks whether there is a file to copy.
    None,
    /// The source, opened by the client: grants the file to a destination.
    Register {
        /// The key of the rendezvous.
        key: String,
        /// The host of the destination.
        destination: String,
        /// Requested validity of the grant in seconds.
        ttl: Option<u64>,
    },
    /// The source, opened by the destination.
    Collect {
        /// The key of the rendezvous.
        key: String,
        /// The client that arranged the copy: `user.pid@host`.
        origin: String,
    },
    /// The destination.
    Pull(Box<PullRequest>),
}

/// The file that a destination fetches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PullRequest {
    /// The key of the rendezvous; only a client that relies on delegated credentials has none.
    pub(crate) key: Option<String>,
    /// The source as the user has named it, if the client relies on delegated credentials instead of a
    /// grant: `host:port`.
    pub(crate) by_credentials: Option<String>,
    /// `host:port`.
    pub(crate) source: String,
    /// The connection to the source must be encrypted.
    pub(crate) encrypted: bool,
    /// The path at the source.
    pub(crate) path: String,
    /// Additional cgi for the source.
    pub(crate) cgi: String,
    pub(crate) streams: Option<u32>,
    pub(crate) checksum: Option<Algorithm>,
    pub(crate) size: Option<u64>,
}

/// The error kind and text for an invalid open.
pub(crate) type Wrong = (ErrorKind, &'static str);

const CONFLICT: Wrong = (ErrorKind::ArgInvalid, "conflicting tpc cgi");
pub(super) const NO_KEY: Wrong = (ErrorKind::ArgInvalid, "tpc key not specified");
const BAD_KEY: Wrong = (ErrorKind::ArgInvalid, "tpc key is invalid");
const BAD_NAME: Wrong = (ErrorKind::ArgInvalid, "tpc host is invalid");
const NO_SOURCE: Wrong = (ErrorKind::ArgInvalid, "tpc source not specified");
const NOT_ABSOLUTE: Wrong = (ErrorKind::ArgInvalid, "source lfn not absolute");
const BAD_STREAMS: Wrong = (ErrorKind::ArgInvalid, "tpc streams value is invalid");
const BAD_CHECKSUM: Wrong = (ErrorKind::ArgInvalid, "tpc checksum type is not known");
const BAD_PROTOCOL: Wrong = (ErrorKind::Unsupported, "tpc source protocol is not supported");
const NOT_CREATING: Wrong = (ErrorKind::ArgInvalid, "a tpc destination must be created or replaced");

/// Parses the cgi of an open of `path`.
pub(crate) fn parse(
    path: &LogicalPath,
    cgi: &Cgi,
    writes: bool,
    creates: bool,
    object_ids: bool,
) -> Result<CopyRole, Wrong> {
    let text = |key: &str| cgi.text(key).filter(|value| !value.is_empty());
    let by_credentials = text("tpc.dlgon") == Some("1");
    let key = text("tpc.key");
    if key.is_some_and(|key| key.len() > KEY_BYTES_MAX || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(BAD_KEY);
    }
    let key = key.map(str::to_owned);
    if writes && (key.is_some() || by_credentials) {
        return pull(path, cgi, key, creates, object_ids).map(|pull| CopyRole::Pull(Box::new(pull)));
    }
    let Some(key) = key else {
        // Without a key nothing could be fetched, and the client would take an empty file for a
        // copy.
        return if writes && cgi.get("tpc.src").is_some() { Err(NO_KEY) } else { Ok(CopyRole::None) };
    };
    if let Some(origin) = collect_origin(cgi, writes) {
        return Ok(CopyRole::Collect { key, origin: name(origin)? });
    }
    match (text("tpc.org"), text("tpc.dst")) {
        (None, Some(destination)) => {
            let ttl = text("tpc.ttl").and_then(|seconds| seconds.parse().ok());
            Ok(CopyRole::Register { key, destination: name(destination)?, ttl })
        }
        _ => Err(CONFLICT),
    }
}

/// Reports whether an open belongs to a third-party copy, at any of its ends. A copy with delegated
/// credentials has no key; an open that only queries has neither a key nor a source.
#[must_use]
pub fn is_copy(cgi: &Cgi) -> bool {
    cgi.get("tpc.key").is_some_and(|key| !key.is_empty()) || cgi.get("tpc.src").is_some()
}

/// Returns the client that arranged the copy, if this is the open of the source by the destination
/// ([`CopyRole::Collect`]). The values are not validated.
pub(crate) fn collect_origin(cgi: &Cgi, writes: bool) -> Option<&str> {
    let text = |key: &str| cgi.text(key).filter(|value| !value.is_empty());
    let is_collect = !writes && text("tpc.key").is_some() && text("tpc.dst").is_none();
    text("tpc.org").filter(|_| is_collect)
}

fn name(text: &str) -> Result<String, Wrong> {
    let fits = text.len() <= NAME_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err(BAD_NAME) }
}

fn pull(
    path: &LogicalPath,
    cgi: &Cgi,
    key: Option<String>,
    creates: bool,
    object_ids: bool,
) -> Result<PullRequest, Wrong> {
    let text = |key: &str| cgi.text(key).filter(|value| !value.is_empty());
    let source = text("tpc.src").and_then(host_and_port).ok_or(NO_SOURCE)?;
    let lfn = match cgi.get("tpc.lfn") {
        Some(lfn) => std::str::from_utf8(lfn).map_err(|_| NOT_ABSOLUTE)?.to_owned(),
        None => path.text().into_owned(),
    };
    let named = !lfn.is_empty() && lfn.len() <= PATH_BYTES_MAX && !lfn.contains(['?', '\0', '\n']);
    if !named || !(object_ids || lfn.starts_with('/')) {
        return Err(NOT_ABSOLUTE);
    }
    let streams = text("tpc.str").map(|number| number.parse::<u32>().map_err(|_| BAD_STREAMS)).transpose()?;
    let checksum = text("tpc.cks").map(|name| Algorithm::from_name(name).ok_or(BAD_CHECKSUM)).transpose()?;
    let encrypted = match text("tpc.spr") {
        None | Some("root" | "xroot") => false,
        Some("roots" | "xroots") => true,
        Some(_) => return Err(BAD_PROTOCOL),
    };
    if !creates {
        return Err(NOT_CREATING);
    }
    let size = text("oss.asize").and_then(|size| size.parse().ok());
    let by_credentials = match text("tpc.dlgon") {
        Some("1") => Some(text("tpc.dlg").map_or(Some(source.clone()), host_and_port).ok_or(NO_SOURCE)?),
        _ => None,
    };
    let cgi = source_cgi(text("tpc.scgi"));
    Ok(PullRequest { key, by_credentials, source, encrypted, path: lfn, cgi, streams, checksum, size })
}

/// Parses `[user@]host[:port]` to `host:port`.
fn host_and_port(text: &str) -> Option<String> {
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let text = name(text).ok()?;
    let (host, port) = match text.rsplit_once(':') {
        // A bare IPv6 address contains colons but no port.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse::<u16>().ok().filter(|port| *port > 0)?)
        }
        Some(_) if !text.starts_with('[') => return Some(format!("[{text}]:{PORT}")),
        _ => (text.as_str(), PORT),
    };
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "-._:[]%".contains(c));
    (!host.is_empty() && !host.contains(odd)).then(|| format!("{host}:{port}"))
}

/// Converts the client's cgi for the source: a TAB stands for `&`, and keys of this protocol and of
/// the client are dropped.
fn source_cgi(text: Option<&str>) -> String {
    let kept =
        |pair: &&str| !pair.is_empty() && !["tpc.", "xrd.", "xrdcl."].iter().any(|own| pair.starts_with(own));
    let parts: Vec<&str> = text.unwrap_or_default().split(['\t', '&']).filter(kept).collect();
    parts.join("&")
}

/// Reports whether an open is that of the destination of a third-party copy at the source. It is
/// admitted only with a grant for this file.
pub(crate) fn collects_grant(target: &Target, request: &OpenRequest) -> bool {
    let changes = request.write || request.append || request.new || request.delete;
    collect_origin(&target.cgi, changes).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(cgi: &str, writes: bool) -> Result<CopyRole, Wrong> {
        let path = LogicalPath::parse(b"/data/here").unwrap();
        parse(&path, &Cgi::new(cgi.as_bytes()), writes, writes, false)
    }

    fn pulled(cgi: &str) -> Result<PullRequest, Wrong> {
        match understood(cgi, true)? {
            CopyRole::Pull(pull) => Ok(*pull),
            other => panic!("{other:?}"),
        }
    }

    /// The opens of the recorded exchange `tpc_copy`.
    #[test]
    fn recorded_opens_are_parsed() {
        assert_eq!(understood("tpc.stage=placement", false), Ok(CopyRole::None));
        let registered = understood("tpc.dst=localhost&tpc.key=525257&tpc.stage=copy", false);
        let key = "525257".to_owned();
        assert_eq!(
            registered,
            Ok(CopyRole::Register { key: key.clone(), destination: "localhost".to_owned(), ttl: None })
        );
        let collected = understood("tpc.key=525257&tpc.org=root.28575@localhost", false);
        assert_eq!(collected, Ok(CopyRole::Collect { key, origin: "root.28575@localhost".to_owned() }));
        let pull = pulled(
            "oss.asize=10000&tpc.dlg=localhost:21010&tpc.dlgon=0&tpc.key=525257&tpc.lfn=/data/f10k&tpc.spr=root\
             &tpc.src=localhost:21010&tpc.stage=copy&tpc.tpr=root",
        )
        .unwrap();
        assert_eq!((pull.source.as_str(), pull.path.as_str()), ("localhost:21010", "/data/f10k"));
        assert_eq!(
            (pull.size, pull.streams, pull.checksum, pull.cgi.as_str()),
            (Some(10_000), None, None, "")
        );
    }

    #[test]
    fn invalid_cgi_is_refused() {
        assert_eq!(understood("tpc.key=k", false), Err(CONFLICT));
        assert_eq!(understood("tpc.key=k&tpc.org=a&tpc.dst=b", false), Err(CONFLICT));
        assert_eq!(understood("tpc.key=k&tpc.dst=a b", false), Err(BAD_NAME));
        assert_eq!(pulled("tpc.key=k"), Err(NO_SOURCE));
        assert_eq!(pulled("tpc.key=k&tpc.src="), Err(NO_SOURCE));
        assert_eq!(pulled("tpc.key=k&tpc.src=h:x"), Err(NO_SOURCE));
        assert_eq!(pulled("tpc.key=k&tpc.src=h/etc"), Err(NO_SOURCE));
        assert_eq!(pulled("tpc.key=k&tpc.src=h&tpc.lfn=f"), Err(NOT_ABSOLUTE));
        assert_eq!(pulled("tpc.key=k&tpc.src=h&tpc.lfn=/f?x=1"), Err(NOT_ABSOLUTE));
        assert_eq!(pulled("tpc.key=k&tpc.src=h&tpc.str=many"), Err(BAD_STREAMS));
        assert_eq!(pulled("tpc.key=k&tpc.src=h&tpc.cks=foo"), Err(BAD_CHECKSUM));
        assert_eq!(pulled("tpc.key=k&tpc.src=h&tpc.spr=https"), Err(BAD_PROTOCOL));
        assert_eq!(understood("tpc.src=h:1&tpc.stage=copy", true), Err(NO_KEY));
        assert_eq!(understood(&format!("tpc.dst=h&tpc.key={}", "k".repeat(257)), false), Err(BAD_KEY));
        let path = LogicalPath::parse(b"/f").unwrap();
        let cgi = Cgi::new(b"tpc.key=k&tpc.src=h");
        assert_eq!(parse(&path, &cgi, true, false, false), Err(NOT_CREATING));
        let cgi = Cgi::new(b"tpc.key=k&tpc.src=h&tpc.lfn=object");
        assert!(parse(&path, &cgi, true, true, true).is_ok());
    }

    #[test]
    fn a_client_may_rely_on_credentials_instead_of_a_grant() {
        let source = |cgi| pulled(cgi).map(|pull| (pull.by_credentials, pull.source));
        let h = || "h:1094".to_owned();
        assert_eq!(source("tpc.key=k&tpc.src=h&tpc.dlgon=0&tpc.dlg=m"), Ok((None, h())));
        assert_eq!(source("tpc.src=h&tpc.dlgon=1"), Ok((Some(h()), h())));
        assert_eq!(source("tpc.key=k&tpc.src=h&tpc.dlgon=1&tpc.dlg=m:2"), Ok((Some("m:2".to_owned()), h())));
        assert_eq!(source("tpc.src=h&tpc.dlgon=1&tpc.dlg=m:x"), Err(NO_SOURCE));
        assert_eq!(understood("tpc.dlgon=1", false), Ok(CopyRole::None));
        let copies = |cgi: &str| is_copy(&Cgi::new(cgi.as_bytes()));
        assert!(copies("tpc.key=k&tpc.dst=h") && copies("tpc.src=h&tpc.dlgon=1") && copies("tpc.src="));
        assert!(!copies("tpc.stage=placement") && !copies("tpc.key=") && !copies("tpc.dlgon=1"));
        let key = |cgi| pulled(cgi).map(|pull| pull.key);
        assert_eq!(key("tpc.src=h&tpc.dlgon=1"), Ok(None));
        assert_eq!(key("tpc.src=h&tpc.dlgon=1&tpc.key="), Ok(None));
    }

    #[test]
    fn a_source_may_have_to_be_encrypted() {
        let encrypted = |cgi| pulled(&format!("tpc.key=k&tpc.src=h{cgi}")).map(|pull| pull.encrypted);
        for (cgi, expected) in [("", false), ("&tpc.spr=root", false), ("&tpc.spr=xroot", false)] {
            assert_eq!(encrypted(cgi), Ok(expected), "{cgi}");
        }
        // The protocol of the connection to this server does not count for the source.
        assert_eq!(encrypted("&tpc.spr=root&tpc.tpr=roots"), Ok(false));
        assert_eq!(encrypted("&tpc.spr=roots&tpc.tpr=root"), Ok(true));
        assert_eq!(encrypted("&tpc.spr=xroots"), Ok(true));
    }

    #[test]
    fn a_source_is_parsed_to_host_and_port() {
        let source = |text: &str| pulled(&format!("tpc.key=k&tpc.src={text}")).map(|pull| pull.source);
        assert_eq!(source("user@h.example.org:1095").unwrap(), "h.example.org:1095");
        assert_eq!(source("h").unwrap(), "h:1094");
        assert_eq!(source("[fd00::7]:2000").unwrap(), "[fd00::7]:2000");
        assert_eq!(source("[fd00::7]").unwrap(), "[fd00::7]:1094");
        assert_eq!(source("fd00::7").unwrap(), "[fd00::7]:1094");
    }

    #[test]
    fn the_cgi_for_the_source_is_filtered() {
        let pull = pulled("tpc.key=k&tpc.src=h&tpc.scgi=authz=x\ttpc.key=z\txrd.gsiusrpxy=p\txrdcl.a=1\tb=2")
            .unwrap();
        assert_eq!(pull.cgi, "authz=x&b=2");
        assert_eq!(pull.path, "/data/here");
    }
}
