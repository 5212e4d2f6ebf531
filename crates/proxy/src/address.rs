//! The URL of a path of a client: the origin, the path there, and the opaque text that it gets.

use crate::settings::{ProxyConfig, ProxyExport};
use base::{Cgi, Error, ErrorKind, LogicalPath, text_of};
use client::{RemotePath, Url};
use std::io;
use vfs::{Caller, Target};

/// Maximum size of the URL of a request.
const URL_BYTES_MAX: usize = 4095;
/// Protocols that a forwarded path can name.
const PROTOCOLS: [&str; 8] = ["root", "xroot", "roots", "xroots", "http", "https", "dav", "davs"];
/// Beginnings of the elements of opaque text that are for clients only, those of third-party copies, which
/// are made in front of these files, and that of persist on close, because files share connections.
const REMOVED_PREFIXES: [&[u8]; 4] = [b"xrd.", b"xrdcl.", b"tpc.", b"ofs.posc="];
/// Element of opaque text that counts the proxies on the way of a request.
const HOPS: &str = "pss.hops";
/// Maximum number of proxies on the way of a request.
const HOPS_MAX: u32 = 8;
/// Linux error number of a read-only file system.
const READ_ONLY: i32 = 30;

/// The place of a path of a client.
#[derive(Debug)]
pub(crate) struct RemoteAddress {
    /// The URL, without the user of the connection.
    pub(crate) url: Url,
    /// The client named the origin.
    pub(crate) is_forwarded: bool,
}

impl ProxyConfig {
    /// Returns the export of a path, or the error of a path outside of all exports.
    pub(crate) fn export(&self, path: &LogicalPath, participle: &str) -> Result<&ProxyExport, Error> {
        let within = self.exports.iter().filter(|export| path.is_within(&export.prefix));
        let found = within.max_by_key(|export| export.prefix.without_slash().as_bytes().len());
        found.ok_or_else(|| {
            let text = format!("{participle} path '{}' is disallowed.", path.text());
            Error::new(ErrorKind::NotAuthorized, text)
        })
    }

    /// Checks that a path may be changed.
    pub(crate) fn check_writable(
        &self,
        path: &LogicalPath,
        participle: &str,
        verb: &str,
    ) -> Result<(), Error> {
        let export = self.export(path, participle)?;
        if export.read_only || export.force_read_only {
            return Err(Error::unable(verb, path, io::Error::from_raw_os_error(READ_ONLY)));
        }
        Ok(())
    }

    /// Checks that a client may remove a file from the cache. The origin is not asked, so the authorization of this
    /// server must decide about the right to it.
    pub(crate) fn check_evictable(&self, path: &LogicalPath, participle: &str) -> Result<(), Error> {
        self.check_writable(path, participle, "evict")?;
        if !self.has_authorization {
            let text = format!(
                "{participle} path '{}' is disallowed: without ofs.authorize, nothing decides who may remove files \
                 from this cache; set it, or run `scalla cache evict` on the server",
                path.text()
            );
            return Err(Error::new(ErrorKind::NotAuthorized, text));
        }
        Ok(())
    }

    /// Returns the place of a path that is exported. The caller is named to the origin.
    pub(crate) fn address(
        &self,
        caller: &Caller,
        target: &Target,
        participle: &str,
    ) -> Result<RemoteAddress, Error> {
        let export = self.export(&target.path, participle)?;
        let refused = |kind, why: &str| {
            Error::new(kind, format!("{participle} path '{}' is not possible: {why}", target.path.text()))
        };
        let forwarded = (!self.forwards.is_empty()).then(|| forwarded(&target.path)).flatten();
        let (mut url, path, is_forwarded) = match (forwarded, &self.origin) {
            (Some(forwarded), _) => {
                let (url, path) = forwarded.map_err(|why| refused(ErrorKind::ArgInvalid, &why))?;
                if !self.forwards.contains(&url.scheme) {
                    let why = format!("{} is no protocol of pss.origin", url.scheme.name());
                    return Err(refused(ErrorKind::NotAuthorized, &why));
                }
                (url, [self.host_arena.as_bytes(), path].concat(), true)
            }
            (None, Some(origin)) => {
                let root = self.local_root.strip_suffix('/').unwrap_or(&self.local_root);
                let parts = [self.host_arena.as_bytes(), root.as_bytes(), target.path.as_bytes()];
                (origin.clone(), parts.concat(), false)
            }
            (None, None) => {
                let why = "it names no origin; it begins with /root:/HOST:PORT/";
                return Err(refused(ErrorKind::ArgInvalid, why));
            }
        };
        let path = RemotePath::new(text_of(&path));
        url.path = path.map_err(|why| refused(ErrorKind::ArgInvalid, &why.to_string()))?;
        url.merge_cgi(&text_of(&forwarded_cgi(&target.cgi)));
        url.cgi.insert("pss.tid".to_owned(), client_name(caller));
        // Proxies that are each other's origins would pass a request round without end.
        let hops = url.cgi.get(HOPS).map_or(Some(0), |hops| hops.parse::<u32>().ok());
        let Some(hops) = hops.filter(|hops| *hops < HOPS_MAX) else {
            return Err(refused(ErrorKind::FsError, "the request has passed too many proxies"));
        };
        url.cgi.insert(HOPS.to_owned(), (hops + 1).to_string());
        if !export.stage {
            url.cgi.insert("oss.lcl".to_owned(), "1".to_owned());
        }
        let bytes = url.authority().len() + url.target().as_bytes().len();
        if bytes > URL_BYTES_MAX {
            return Err(refused(ErrorKind::ArgTooLong, "its URL at the origin is too long"));
        }
        Ok(RemoteAddress { url, is_forwarded })
    }
}

/// Splits the path `/root:/host:port/path`. Returns `None` if it begins with no protocol.
fn forwarded(path: &LogicalPath) -> Option<Result<(Url, &[u8]), String>> {
    let bytes = path.as_bytes().strip_prefix(b"/")?;
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let (protocol, rest) = (bytes.get(..colon)?, bytes.get(colon + 1..)?);
    let protocol = PROTOCOLS.into_iter().find(|known| known.as_bytes() == protocol)?;
    let rest = rest.strip_prefix(b"/")?;
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (authority, path) = (rest.get(..end)?, rest.get(end..)?);
    let path = if path.is_empty() { &b"/"[..] } else { path };
    let parsed = std::str::from_utf8(authority)
        .map_err(|error| error.to_string())
        .and_then(|authority| Url::parse(&format!("{protocol}://{authority}")).map_err(|e| e.to_string()));
    Some(match parsed {
        Ok(url) if !url.others.is_empty() => Err("it names several hosts".to_owned()),
        // A user of its own for each path would open any number of connections.
        Ok(url) => Ok((Url { user: None, password: None, ..url }, path)),
        Err(why) => Err(why),
    })
}

/// Returns the opaque text for the origin.
fn forwarded_cgi(cgi: &Cgi) -> Vec<u8> {
    let is_kept = |element: &&[u8]| !REMOVED_PREFIXES.iter().any(|prefix| element.starts_with(prefix));
    let elements = cgi.as_bytes().split(|&byte| byte == b'&').filter(|element| !element.is_empty());
    elements.filter(is_kept).collect::<Vec<_>>().join(&b'&')
}

/// Returns the name of a client as the value of an element of opaque text.
fn client_name(caller: &Caller) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '&' | '?' | '=') { c } else { '_' };
    caller.identity.to_string().chars().map(plain).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::settings::client_settings;
    use base::{Identity, LoginNames};
    use client::{Credentials, Scheme};

    const SCHEMES: [Scheme; 4] = [Scheme::Root, Scheme::Roots, Scheme::Http, Scheme::Https];

    pub(crate) fn proxy(origin: Option<&str>, forwards: bool) -> ProxyConfig {
        let export = |prefix: &str, read_only, stage| ProxyExport {
            prefix: LogicalPath::parse(prefix.as_bytes()).unwrap(),
            read_only,
            force_read_only: false,
            stage,
        };
        ProxyConfig {
            exports: vec![
                export("/", false, false),
                export("/ro", true, false),
                export("/tape", false, true),
            ],
            origin: origin.map(|url| Url::parse(url).unwrap()),
            store: None,
            forwards: if forwards { SCHEMES.to_vec() } else { Vec::new() },
            permits: None,
            local_root: String::new(),
            host_arena: String::new(),
            client: client_settings(),
            credentials: Credentials::none(),
            identities: None,
            trusted: None,
            checksums: Vec::new(),
            cache: None,
            local_clients: None,
            memory_cache: None,
            has_authorization: false,
            connections_max: 100,
            in_cluster: false,
            own_address: ("[::127.0.0.1]:1".into(), "h:1".into()),
        }
    }

    fn caller() -> Caller {
        let names = LoginNames { user: "u&1", host: "c.example.org", ..LoginNames::default() };
        Caller::new(Identity::new(&names, 7, None, "host"), true, false)
    }

    fn target(text: &str) -> Target {
        Target::parse(text.as_bytes(), "Opening").unwrap()
    }

    fn address(proxy: &ProxyConfig, text: &str) -> Result<(String, String), Error> {
        let address = proxy.address(&caller(), &target(text), "Opening")?;
        Ok((address.url.authority(), address.url.target().text().into_owned()))
    }

    #[test]
    fn files_are_removed_from_the_cache_only_where_an_authorization_decides() {
        let mut proxy = proxy(Some("root://o:2"), false);
        let refused = |proxy: &ProxyConfig, path: &str| {
            proxy
                .check_evictable(&target(path).path, "Setting")
                .map_err(|error| (error.kind, error.text))
                .err()
        };
        let (kind, text) = refused(&proxy, "/a").unwrap();
        assert_eq!(kind, ErrorKind::NotAuthorized);
        assert!(text.contains("ofs.authorize") && text.contains("`scalla cache evict`"), "{text}");
        proxy.has_authorization = true;
        assert_eq!(refused(&proxy, "/a"), None);
        assert_eq!(refused(&proxy, "/ro/a").unwrap().0, ErrorKind::FsReadOnly);
    }

    #[test]
    fn a_fixed_origin_gets_path_and_text_without_parts_for_clients() {
        let proxy = proxy(Some("root://o:2"), false);
        let (authority, path) =
            address(&proxy, "/a/b?authz=x&xrd.wantprot=gsi&xrdcl.a=b&tried=h&ofs.posc=1&tpc.key=1&pfc.x=1")
                .unwrap();
        assert_eq!(authority, "o:2");
        assert_eq!(path, "/a/b?authz=x&oss.lcl=1&pfc.x=1&pss.hops=1&pss.tid=u_1.7@c.example.org&tried=h");
        // The additions do not depend on text of the client, which cannot replace them.
        assert_eq!(address(&proxy, "/a").unwrap().1, "/a?oss.lcl=1&pss.hops=1&pss.tid=u_1.7@c.example.org");
        let own = address(&proxy, "/tape/a?pss.tid=root.1@x").unwrap();
        assert_eq!(own.1, "/tape/a?pss.hops=1&pss.tid=u_1.7@c.example.org");
    }

    #[test]
    fn a_request_passes_a_limited_number_of_proxies() {
        let proxy = proxy(Some("root://o:2"), false);
        assert!(address(&proxy, "/a?pss.hops=7").unwrap().1.contains("&pss.hops=8&"));
        for hops in ["8", "99", "-1", "x"] {
            let refused = address(&proxy, &format!("/a?pss.hops={hops}")).unwrap_err();
            assert!(refused.text.contains("too many proxies"), "{}", refused.text);
        }
    }

    #[test]
    fn prefixes_are_added_in_order() {
        let mut proxy = proxy(Some("root://o:2"), true);
        proxy.local_root = "/store/".to_owned();
        proxy.host_arena = "/arena".to_owned();
        assert!(address(&proxy, "/a").unwrap().1.starts_with("/arena/store/a?"));
        let (authority, path) = address(&proxy, "/root:/h/a").unwrap();
        assert_eq!((&*authority, path.starts_with("/arena/a?")), ("h:1094", true));
    }

    #[test]
    fn forwarded_paths_name_their_origin() {
        let forward = proxy(None, true);
        for (path, authority, at) in [
            ("/root:/h:2//a", "h:2", "/a"),
            ("/xroot://u@h//a/b", "h:1094", "/a/b"),
            ("/roots:/[::1]:3/a", "[::1]:3", "/a"),
            ("/root:/h", "h:1094", "/"),
            ("/http:/h/a", "h:80", "/a"),
            ("/davs:/h:2/a", "h:2", "/a"),
        ] {
            let found = forward.address(&caller(), &target(path), "Opening").unwrap();
            assert!(found.is_forwarded && found.url.user.is_none());
            assert_eq!((found.url.authority().as_str(), found.url.path.as_str()), (authority, at), "{path}");
        }
        let kind = |proxy: &ProxyConfig, path: &str| address(proxy, path).unwrap_err().kind;
        assert_eq!(kind(&forward, "/a"), ErrorKind::ArgInvalid);
        assert_eq!(kind(&forward, "/root:/h1,h2/a"), ErrorKind::ArgInvalid);
        assert_eq!(kind(&forward, "/root:/h:99999/a"), ErrorKind::ArgInvalid);
        assert_eq!(kind(&forward, &format!("/root:/h/{}", "x".repeat(4080))), ErrorKind::ArgTooLong);
        // Without forwarding, such a path is one at the origin.
        let fixed = proxy(Some("root://o:2"), false);
        assert!(address(&fixed, "/root:/h/a").unwrap().1.starts_with("/root:/h/a?"));
    }

    #[test]
    fn forwarded_paths_have_the_protocols_of_the_origin() {
        let mut proxy = proxy(Some("root://o:2"), true);
        proxy.forwards = vec![Scheme::Root, Scheme::Https];
        for (path, is_possible) in [
            ("/root:/h/a", true),
            ("/xroot:/h/a", true),
            ("/davs:/h/a", true),
            ("/roots:/h/a", false),
            ("/http:/h/a", false),
            ("/dav:/h/a", false),
        ] {
            match address(&proxy, path) {
                Ok(_) => assert!(is_possible, "{path}"),
                Err(error) => {
                    assert_eq!((error.kind, is_possible), (ErrorKind::NotAuthorized, false), "{path}")
                }
            }
        }
    }

    #[test]
    fn the_longest_export_decides() {
        let mut proxy = proxy(Some("root://o:2"), false);
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        assert!(proxy.check_writable(&path("/a"), "Removing", "remove").is_ok());
        let refused = proxy.check_writable(&path("/ro/a"), "Removing", "remove").unwrap_err();
        assert_eq!(refused.kind, ErrorKind::FsReadOnly);
        assert_eq!(refused.text, "Unable to remove /ro/a; read-only file system");
        proxy.exports.remove(0);
        let outside = address(&proxy, "/x").unwrap_err();
        assert_eq!(
            (outside.kind, &*outside.text),
            (ErrorKind::NotAuthorized, "Opening path '/x' is disallowed.")
        );
    }
}
