//! The pages of a listing that reads its directory by itself.
//!
//! Each page is a job of its own in the pool of the directory, so that other jobs get their turn
//! between pages, and the directory is read only as fast as the client takes pages.

use crate::directory_reading::{DescribedPage, DirectoryReading};
use crate::job;
use std::sync::Arc;
use vfs::{
    Answer, Caller, DeferredReply, DirectoryEntries, DirectoryEntry, ListingPosition, ReplyTo, Started, Value,
};

/// Returns the next page of a listing's own reading.
pub(crate) fn next_page(caller: &Arc<Caller>, reading: Box<DirectoryReading>, reply: &ReplyTo) -> Started {
    queue_own(caller.clone(), reading, reply.defer());
    Started::Pending
}

/// Queues the reading of the next page.
fn queue_own(caller: Arc<Caller>, reading: Box<DirectoryReading>, reply: DeferredReply) {
    let (pool, owner) = (reading.pool().clone(), reply.owner());
    let read = move |reply| read_page(caller, reading, reply);
    job::submit_or(|job| pool.run(owner, job), reply, read, job::refuse);
}

/// Reads a page of a listing's own reading. May wait. If a page has no name that can be listed, the
/// next page is queued, so that other jobs get their turn.
pub(crate) fn read_page(caller: Arc<Caller>, mut reading: Box<DirectoryReading>, reply: DeferredReply) {
    if caller.is_disconnected() {
        return reply.send(job::disconnected_answer());
    }
    let names = match reading.names() {
        Ok(names) => names,
        Err(error) => return reply.send(Answer::Error(error)),
    };
    if names.is_empty() {
        return reply
            .send(Answer::Value(Value::Listing { entries: DirectoryEntries::default(), rest: None }));
    }
    let tell = move |reading, entries: Vec<DirectoryEntry>, reply| {
        if entries.is_empty() {
            queue_own(caller, reading, reply);
        } else {
            send_page(reading, entries, reply);
        }
    };
    match reading.describe(names) {
        DescribedPage::Here(reading, entries) => tell(reading, entries, reply),
        DescribedPage::Elsewhere(errand) => errand.describe_elsewhere(move |page| match page {
            Some((reading, entries)) => tell(reading, entries, reply),
            None => job::refuse(reply),
        }),
    }
}

fn send_page(reading: Box<DirectoryReading>, entries: Vec<DirectoryEntry>, reply: DeferredReply) {
    let rest = Some(reading as Box<dyn ListingPosition>);
    reply.send(Answer::Value(Value::Listing { entries: entries.into(), rest }));
}
