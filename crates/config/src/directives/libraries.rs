//! Plug-in libraries, which are never loaded.
//!
//! A library of XRootD selects the built-in implementation of the same function or is reported as
//! not yet in force, so that existing files of sites load. Any other library is an error with a
//! remedy.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::missing;
use super::missing::MissingPart;
use super::shared::unprotected;
use crate::language::DirectiveToken;
use crate::report::ProblemKind;

/// The purpose for which a directive names a library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LibraryPurpose {
    Checksum,
    Cluster,
    FileSystem,
    Monitoring,
    Names,
    Prepare,
    Protocol,
    Redirect,
    Storage,
    Xattr,
}

impl LibraryPurpose {
    /// Returns the remedy for a third-party library.
    fn instead(self) -> &'static str {
        match self {
            Self::Checksum => {
                "name the checksum in xrootd.chksum; these are built in: adler32 crc32c md5 crc32 zcrc32 sha1 sha256"
            }
            Self::Cluster => "clustering is built in, and not in force yet",
            Self::FileSystem => "use the built-in file system, without this directive",
            Self::Monitoring => "monitoring is built in, and not in force yet",
            Self::Names => {
                "write rules instead: scalla.namerule FROM TO, scalla.namerule FROM TO rucio, or scalla.namerule FROM \
                 TO regex PATTERN RESULT inverse PATTERN RESULT"
            }
            Self::Prepare => "staging is built in, and not in force yet",
            Self::Protocol => "use the built-in xroot protocol, without this directive",
            Self::Redirect => "use xrootd.redirect",
            Self::Storage => "use the built-in storage with oss.localroot and oss.space",
            Self::Xattr => "extended attributes of the file system are used, without this directive",
        }
    }
}

/// The treatment of a library of XRootD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LibraryEffect {
    /// The built-in implementation is in force without it.
    BuiltIn,
    /// The function is not in force yet; the served data is correct without it.
    NotYet(MissingPart),
    /// Without it, the server would serve or write other data than the file describes.
    Needed,
    /// It restricts access.
    Guards,
    /// It serves the files of other servers.
    Proxies,
    /// It makes operations with the rights of the accounts of clients.
    ActsForUsers,
}

struct KnownLibrary {
    /// Base name without `.so` and version.
    name: &'static str,
    /// Function of the library.
    what: &'static str,
    fate: LibraryEffect,
}

const fn known(name: &'static str, fate: LibraryEffect, what: &'static str) -> KnownLibrary {
    KnownLibrary { name, what, fate }
}

const KNOWN: &[KnownLibrary] = &[
    known("libXrdAccSciTokens", LibraryEffect::Guards, "authorization by tokens"),
    known("libXrdBlacklistDecision", LibraryEffect::NotYet(missing::CACHE), "cache decisions"),
    known("libXrdBwm", LibraryEffect::Needed, "bandwidth scheduling"),
    known("libXrdCksCalczcrc32", LibraryEffect::BuiltIn, "the zcrc32 checksum"),
    known("libXrdClProxyPlugin", LibraryEffect::Needed, "a client behind a proxy"),
    known("libXrdCmsRedirectLocal", LibraryEffect::NotYet(missing::REDIRECTION), "redirects to local files"),
    known("libXrdFileCache", LibraryEffect::Needed, "the disk cache"),
    known("libXrdHttp", LibraryEffect::BuiltIn, "HTTP"),
    known("libXrdHttpCors", LibraryEffect::BuiltIn, "replies for pages of other sites"),
    known("libXrdHttpTPC", LibraryEffect::BuiltIn, "HTTP third-party copy"),
    known("libXrdMacaroons", LibraryEffect::Guards, "authorization by macaroons"),
    known("libXrdMultiuser", LibraryEffect::ActsForUsers, "acting as the user"),
    known("libXrdN2No2p", LibraryEffect::Needed, "names made from object ids"),
    known("libXrdOfs", LibraryEffect::BuiltIn, "the file system"),
    known("libXrdOfsPrepGPI", LibraryEffect::NotYet(missing::PREPARE), "a prepare program"),
    known("libXrdOssArc", LibraryEffect::Needed, "archives"),
    known(
        "libXrdOssCsi",
        LibraryEffect::Needed,
        "stored page checksums, which writes without it would make wrong",
    ),
    known("libXrdOssSIgpfsT", LibraryEffect::Needed, "stat answers of GPFS"),
    known("libXrdOssStats", LibraryEffect::NotYet(missing::STATISTICS), "storage statistics"),
    known("libXrdPfc", LibraryEffect::Needed, "the disk cache"),
    known("libXrdPfcPurgeQuota", LibraryEffect::NotYet(missing::CACHE), "cache quotas"),
    known("libXrdPss", LibraryEffect::Proxies, "the proxy"),
    known("libXrdSsi", LibraryEffect::Needed, "SSI services"),
    known("libXrdSsiLog", LibraryEffect::NotYet(missing::SERVICES), "the log of SSI services"),
    known("libXrdTCPMonPlugin", LibraryEffect::NotYet(missing::CONNECTIONS), "reports on TCP connections"),
    known("libXrdThrottle", LibraryEffect::NotYet(missing::THROTTLING), "throttling"),
    known("libXrdVoms", LibraryEffect::Guards, "VOMS attributes"),
    known("libXrdXrootd", LibraryEffect::BuiltIn, "the xroot protocol"),
    // Keywords that are not libraries.
    known("default", LibraryEffect::BuiltIn, "the default"),
    known("throttle", LibraryEffect::NotYet(missing::THROTTLING), "throttling"),
];

/// Reads the library argument, after `++` and `+x`/`-x` options.
pub(super) fn library<'a>(arguments: &mut Arguments<'a>) -> Result<&'a DirectiveToken, DirectiveFault> {
    let mut token = arguments.need("library")?;
    while token.text.starts_with(['+', '-']) {
        token = arguments.need("library")?;
    }
    Ok(token)
}

/// Selects the treatment of `library`: nothing (built in), a warning, or a fault.
pub(super) fn select(
    arguments: &Arguments<'_>,
    library: &DirectiveToken,
    purpose: LibraryPurpose,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let text = &library.text;
    let base = base_name(text);
    if base.starts_with("libXrdSec") {
        return Err(unprotected(library, &format!("'{text}'")));
    }
    let Some(known) = KNOWN.iter().find(|known| known.name == base) else {
        let what = format!("unsupported library '{text}'");
        return Err(DirectiveFault::at(library, what, purpose.instead()).of(ProblemKind::ForeignLibrary));
    };
    match known.fate {
        LibraryEffect::BuiltIn => Ok(()),
        LibraryEffect::NotYet(missing) => {
            let what = format!("{}: {} ({base}) is not in force yet", arguments.name.text, known.what);
            draft.not_yet(library, what, Some(missing), None);
            Ok(())
        }
        LibraryEffect::Needed => {
            let what = format!("{} ({base}) is not in force yet", known.what);
            let allowed = "not starting, because something else would be served without it";
            Err(DirectiveFault::at(library, what, allowed).of(ProblemKind::Unsupported))
        }
        LibraryEffect::Proxies => serve_origins(arguments, library, purpose, draft),
        LibraryEffect::ActsForUsers => act_for_users(arguments, library, purpose, draft),
        LibraryEffect::Guards => Err(unprotected(library, &format!("'{text}' ({})", known.what))),
    }
}

/// Makes the server a proxy, for the purposes for which XRootD has it.
fn serve_origins(
    arguments: &Arguments<'_>,
    library: &DirectiveToken,
    purpose: LibraryPurpose,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    match purpose {
        LibraryPurpose::Storage => draft.effective.proxy.enabled.set(true, arguments.origin()),
        // A proxy always returns the checksums of its origin.
        LibraryPurpose::Checksum => {}
        _ => {
            let what = format!("{} does not make the server a proxy", arguments.name.text);
            let allowed = "name libXrdPss.so in ofs.osslib";
            return Err(DirectiveFault::at(library, what, allowed).of(ProblemKind::Unsupported));
        }
    }
    Ok(())
}

/// Enables multi-user for the purposes for which XRootD has it.
fn act_for_users(
    arguments: &Arguments<'_>,
    library: &DirectiveToken,
    purpose: LibraryPurpose,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let values = &mut draft.effective.multi_user;
    match purpose {
        LibraryPurpose::Storage | LibraryPurpose::FileSystem => values.enabled.set(true, arguments.origin()),
        LibraryPurpose::Checksum => values.checksums.set(true, arguments.origin()),
        _ => {
            let what = format!("{} does not act as the user", arguments.name.text);
            let allowed = "name libXrdMultiuser.so in ofs.osslib";
            return Err(DirectiveFault::at(library, what, allowed).of(ProblemKind::Unsupported));
        }
    }
    Ok(())
}

/// Returns the base name: `libXrdHttp` for `/usr/lib64/libXrdHttp-5.so`.
pub(super) fn base_name(text: &str) -> &str {
    let file = text.rsplit('/').next().unwrap_or(text);
    let stem = file.split_once(".so").map_or(file, |(stem, _)| stem);
    match stem.rsplit_once('-') {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_version_and_suffix_are_removed() {
        for text in [
            "libXrdHttp.so",
            "libXrdHttp-5.so",
            "/usr/lib64/libXrdHttp-6.so",
            "libXrdHttp.so.2",
            "libXrdHttp",
        ] {
            assert_eq!(base_name(text), "libXrdHttp", "{text}");
        }
        assert_eq!(base_name("libMy-Lib.so"), "libMy-Lib");
        assert_eq!(base_name(""), "");
    }
}
