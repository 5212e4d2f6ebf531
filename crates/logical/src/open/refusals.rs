//! Answers to opens of files that are not whole.

use super::plan::{Opener, Plan};
use crate::wholeness::Wholeness;
use base::{Error, ErrorKind};
use vfs::Answer;

/// The wait sent to a reader of a file that is not yet whole.
const CREATION_SECONDS: u64 = 60;

/// The answer to an open of a marked file by one who has no share in it. If nothing here speaks for it, another server may
/// be writing it, so it is neither served nor removed.
pub(super) fn unfinished(opener: &Opener, plan: &Plan, found: Wholeness) -> Answer {
    match found {
        Wholeness::Left => {}
        Wholeness::Unresolved => return Answer::Error(unresolved(plan)),
        _ if plan.write => return busy(plan),
        _ => return being_created(opener, plan),
    }
    let text = format!(
        "Unable to {} {}; it is unfinished, and nobody has written it for a long time: upload it again or remove it",
        plan.verb(),
        plan.path.text()
    );
    Answer::Error(Error::new(ErrorKind::InProgress, text))
}

/// The error of a creator at a name whose unfinished file cannot be looked for.
pub(super) fn absent(plan: &Plan) -> Error {
    let text = format!(
        "Unable to {} {}; an unfinished upload of it lies on a file system that is not mounted, or was moved with its \
         directory: mount it and restart the server, open with force (xrdcp --coerce), or have the administrator run: \
         scalla admin unfinished clear {}",
        plan.verb(),
        plan.path.text(),
        plan.plain.shell_word()
    );
    Error::new(ErrorKind::FsError, text)
}

/// The error of an open of a file that may be an unfinished one without its mark.
fn unresolved(plan: &Plan) -> Error {
    let text = format!(
        "Unable to {} {}; it may be unfinished: an upload of it did not end, and its directory was moved since. Upload it again, \
         or have the administrator compare it and run: scalla admin unfinished clear {}",
        plan.verb(),
        plan.path.text(),
        plan.plain.shell_word()
    );
    Error::new(ErrorKind::FsError, text)
}

/// The answer to a writer of a file that is not yet whole and belongs to somebody else.
pub(super) fn busy(plan: &Plan) -> Answer {
    let text = format!(
        "Unable to access {}; text file busy\nAdditional context: ofs_open: posc mode initiation failed",
        plan.path.text()
    );
    Answer::Error(Error::new(ErrorKind::InProgress, text))
}

/// The answer to a reader of a file that is not yet whole.
pub(super) fn being_created(opener: &Opener, plan: &Plan) -> Answer {
    let name = String::from_utf8_lossy(plan.plain.file_name().unwrap_or_default()).into_owned();
    let seconds = CREATION_SECONDS.min(opener.delay_max.as_secs()) as u32;
    let text = format!("File {name} is being created; estimated time to completion 1 minute");
    Answer::Wait { seconds, text }
}
