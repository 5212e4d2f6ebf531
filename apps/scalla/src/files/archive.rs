//! `scalla ls --zip`: the members of ZIP archives.

use client::xroot::flags::StatFlags;
use client::zip::{Archive, ArchiveError, Member};
use client::{OpenWith, StatInfo, Url};

use super::context::Context;

/// Returns the members of an archive, with the status that its directory contains: kind, size and
/// time.
pub(super) async fn members(context: &Context, url: &Url) -> Result<Vec<(String, StatInfo)>, ArchiveError> {
    let files = context.files(url);
    let file = files.client().open(url, &OpenWith::read()).await.map_err(ArchiveError::Read)?;
    let archive = Archive::open(&file).await?;
    Ok(archive.members().iter().map(|member| (member.name().into_owned(), status(member))).collect())
}

fn status(member: &Member) -> StatInfo {
    let directory = if member.name.ends_with(b"/") { StatFlags::IS_DIR } else { StatFlags::default() };
    // Archives do not state the time zone of their times, so the local time zone is assumed.
    let modified = member.modified().and_then(|time| time.to_zoned(client::local_zone()).ok());
    let mtime = modified.map_or(0, |time| time.timestamp().as_second());
    StatInfo { id: 0, size: member.size, flags: StatFlags::READABLE | directory, mtime, more: None }
}
