//! Verification and removal of the files that a load wrote.

use anyhow::Context;
use client::SecuredLogin;
use client::xroot::request::{self, Request};
use rawclient::BlockingSession;
use std::time::Duration;

use super::generator::{self, LoadResult};
use super::load_plan::LoadPlan;
use super::operation::{NEW_FILE_MODE, OPEN_TO_READ};
use super::pattern;

/// Timeout of each of these requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes read back by one request.
const PIECE: u32 = 4 << 20;

/// Reads the written data back if it must be verified. Removes the files unless they are to be
/// kept.
pub(super) fn verify_and_remove(
    plan: &LoadPlan,
    login: &SecuredLogin,
    ran: &mut LoadResult,
) -> anyhow::Result<()> {
    if !plan.kind.writes() || (plan.keep && !plan.verify) {
        return Ok(());
    }
    let mut session =
        generator::session(ran.address, login, REQUEST_TIMEOUT).context("cannot look at what was written")?;
    for number in 0..ran.written.len() {
        let target = plan.url.target_of(&plan.path(number)).text().into_owned();
        if plan.verify {
            let found = compare(&mut session, &target, ran.written[number]);
            if let Some(wrong) = found.with_context(|| format!("cannot read {target} back"))? {
                ran.counters.error(|| format!("{target}: {wrong}"));
            }
        }
        if !plan.keep {
            let remove = Request::Rm(request::Rm { path: target.as_bytes() });
            session.call(&remove).with_context(|| format!("cannot remove {target}"))?;
        }
    }
    Ok(())
}

/// Describes the first difference in the first `length` bytes of a file.
fn compare(session: &mut BlockingSession, target: &str, length: u64) -> anyhow::Result<Option<String>> {
    let handle = session.open(target, OPEN_TO_READ, NEW_FILE_MODE)?;
    let mut at = 0;
    let mut wrong = None;
    while at < length && wrong.is_none() {
        let wanted = u32::try_from(length - at).unwrap_or(PIECE).min(PIECE);
        let data = session.read(handle, at, wanted)?;
        if let Some(offset) = pattern::first_wrong(at, &data) {
            wrong = Some(format!("byte {} is not what was written", at + offset as u64));
        } else if data.len() < wanted as usize {
            wrong =
                Some(format!("ends after {} of {length} bytes that were written", at + data.len() as u64));
        }
        at += data.len() as u64;
    }
    session.call(&Request::Close(request::Close { fhandle: handle }))?;
    Ok(wrong)
}
