//! Connections that are kept busy by threads of their own, until the noise is dropped.

use anyhow::{Result, bail};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes that are taken from a socket at once.
const READ_BYTES: usize = 256 * 1024;

/// Busy connections.
#[derive(Default)]
pub(crate) struct Noise {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
    sent: Arc<AtomicU64>,
}

impl Noise {
    /// Sends `bytes`, which are `count` requests, again and again, as fast as the peer takes them.
    pub(crate) fn repeat(&mut self, stream: TcpStream, bytes: Vec<u8>, count: u64) -> Result<()> {
        let sent = self.sent.clone();
        let mut to = stream.try_clone()?;
        self.work(stream, move || {
            while to.write_all(&bytes).is_ok() {
                sent.fetch_add(count, Ordering::Relaxed);
            }
        })
    }

    /// Takes everything that the peer sends, and ignores it.
    pub(crate) fn discard(&mut self, stream: TcpStream) -> Result<()> {
        let mut from = stream.try_clone()?;
        self.work(stream, move || {
            let mut buffer = vec![0; READ_BYTES];
            while matches!(from.read(&mut buffer), Ok(1..)) {}
        })
    }

    /// Runs something that ends with the connection.
    pub(crate) fn work(&mut self, stream: TcpStream, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.streams.push(stream);
        self.threads.push(std::thread::Builder::new().spawn(work)?);
        Ok(())
    }

    /// The counter of requests, for [`Self::work`].
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.sent.clone()
    }

    /// Requests that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Fails if the peer has ended a connection.
    pub(crate) fn check(&self) -> Result<()> {
        match self.threads.iter().filter(|thread| thread.is_finished()).count() {
            0 => Ok(()),
            ended => bail!("the peer ended {ended} of the busy connections"),
        }
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        for stream in &self.streams {
            stream.shutdown(Shutdown::Both).ok();
        }
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}
