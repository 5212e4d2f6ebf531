//! The errors of opens of unfinished files. Each one names what the client or the administrator can
//! do, because the server itself must not decide that a file is complete.

use super::plan::{OpenPlan, OpenServices};
use crate::wholeness::Wholeness;
use base::{Error, ErrorKind};
use vfs::Answer;

/// Maximum wait sent to a reader of an unfinished file, in seconds.
const CREATION_SECONDS: u64 = 60;

/// Returns the answer to an open of a marked file by a client without a ticket for it. Without a
/// record here, another server may be writing the file, so it is neither served nor removed.
pub(super) fn unfinished(opener: &OpenServices, plan: &OpenPlan, found: Wholeness) -> Answer {
    match found {
        Wholeness::Left => {}
        Wholeness::Unresolved => return Answer::Error(unresolved(plan)),
        _ if plan.write => return busy(plan),
        _ => return being_created(opener, plan),
    }
    let text = format!(
        "Unable to {} {}; it is unfinished and has not been written for a long time: upload it again or remove it",
        plan.verb(),
        plan.path.text()
    );
    Answer::Error(Error::new(ErrorKind::InProgress, text))
}

/// Returns the error of a create at a name whose unfinished file cannot be examined.
pub(super) fn absent(plan: &OpenPlan) -> Error {
    let text = format!(
        "Unable to {} {}; its unfinished upload is on a file system that is not mounted, or was moved with its \
         directory: mount it and restart the server, open with force (xrdcp --coerce), or ask the administrator to run: \
         scalla admin unfinished clear {}",
        plan.verb(),
        plan.path.text(),
        plan.plain.shell_word()
    );
    Error::new(ErrorKind::FsError, text)
}

/// Returns the error of an open of a file that may be unfinished without its mark.
fn unresolved(plan: &OpenPlan) -> Error {
    let text = format!(
        "Unable to {} {}; it may be unfinished: its upload did not complete, and its directory was moved since. Upload it again, \
         or ask the administrator to compare it and run: scalla admin unfinished clear {}",
        plan.verb(),
        plan.path.text(),
        plan.plain.shell_word()
    );
    Error::new(ErrorKind::FsError, text)
}

/// Returns the answer to a writer of an unfinished file of another client.
pub(super) fn busy(plan: &OpenPlan) -> Answer {
    let text = format!(
        "Unable to access {}; text file busy\nAdditional context: ofs_open: posc mode initiation failed",
        plan.path.text()
    );
    Answer::Error(Error::new(ErrorKind::InProgress, text))
}

/// Returns the answer to a reader of an unfinished file.
pub(super) fn being_created(opener: &OpenServices, plan: &OpenPlan) -> Answer {
    let name = String::from_utf8_lossy(plan.plain.file_name().unwrap_or_default()).into_owned();
    let seconds = CREATION_SECONDS.min(opener.delay_max.as_secs()) as u32;
    let text = format!("File {name} is being created; estimated time to completion 1 minute");
    Answer::Wait { seconds, text }
}
