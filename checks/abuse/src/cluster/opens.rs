//! First opens: a client asks a manager for existing files that no client has asked for.

use crate::raw::{READING, RawClient, open};
use crate::reference_client::Latencies;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Statuses of replies.
const ERROR: u16 = 4003;
const REDIRECT: u16 = 4004;

/// Between two opens: each finds the manager as it is then, not as the one before has left it.
const PAUSE: Duration = Duration::from_millis(1);

/// Opens each file at the manager, which must send the client on.
pub(crate) fn first_opens(port: u16, paths: &[String]) -> Result<Latencies> {
    let mut client = RawClient::login(port)?;
    let mut latencies = Latencies::default();
    for path in paths {
        let begun = Instant::now();
        if !is_redirected(&mut client, path)? {
            bail!("the manager does not find {path}, which a server has");
        }
        latencies.add(begun.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(latencies)
}

/// Reports whether the manager sends a client on to a file; `false` if there is no such file.
pub(crate) fn is_redirected(client: &mut RawClient, path: &str) -> Result<bool> {
    client.send(&open(path, READING))?;
    match client.reply()? {
        (REDIRECT, _) => Ok(true),
        (ERROR, _) => Ok(false),
        (status, data) => bail!("status {status} for {path}: {}", String::from_utf8_lossy(&data)),
    }
}
