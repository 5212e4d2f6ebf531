//! Directory listings in pages.
//!
//! Concurrent listings of a directory share one reading of it ([`crate::scan`]). Each listing reads
//! the part of a large directory that exceeds the shared buffer itself ([`crate::own_pages`]).

use crate::config::Checksums;
use crate::directory_reading::{DirectoryReading, ListingKey};
use crate::errno::{self, unable};
use crate::exports::ExportTable;
use crate::job::done;
use crate::own_pages;
use crate::scan::{self, ScanPosition, Scans};
use base::LogicalPath;
use std::sync::Arc;
use vfs::{Caller, ListDetail, ListingPosition, ReplyTo, Started, Target};

/// The components that listings use.
pub(crate) struct Listings {
    pub(crate) exports: Arc<ExportTable>,
    /// The algorithms of checksums that may be shown.
    pub(crate) checksums: Checksums,
    /// Directories that are being read.
    pub(crate) scans: Arc<Scans>,
}

/// Starts a listing with its first page.
pub(crate) fn start(
    listings: &Arc<Listings>,
    caller: &Arc<Caller>,
    target: Target,
    detail: ListDetail,
    reply: &ReplyTo,
) -> Started {
    let read_only = match listings.exports.find(&target.path, "Listing") {
        Ok(export) => export.is_read_only(),
        Err(error) => return done(Err(error)),
    };
    let algorithm = match listings.checksums.default_type() {
        Some(_) if detail.checksum => match listings.checksums.algorithm(&target.cgi) {
            Ok(algorithm) => Some(algorithm),
            Err(error) => return done(Err(error)),
        },
        _ => None,
    };
    scan::join(
        &listings.scans,
        caller,
        ListingKey { path: target.path, detail, read_only, algorithm },
        reply,
    );
    Started::Pending
}

/// Returns the next page. The position determines the rights, which are those of the first page.
pub(crate) fn more(caller: &Arc<Caller>, rest: Box<dyn ListingPosition>, reply: &ReplyTo) -> Started {
    let rest = match rest.into_any().downcast::<ScanPosition>() {
        Ok(position) => return scan::more(caller, &position, reply),
        Err(rest) => rest,
    };
    match rest.downcast::<DirectoryReading>() {
        Ok(reading) => own_pages::next_page(caller, reading, reply),
        Err(_) => done(Err(unable("read directory", &LogicalPath::root(), errno::INVALID))),
    }
}
