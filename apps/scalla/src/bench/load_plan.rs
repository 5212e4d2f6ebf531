//! The description of a load: the validated command line.

use anyhow::{Context, bail};
use client::{RemotePath, Scheme, Url, pages};
use std::time::Duration;

use super::options::{self, DataCheckOptions, LoadCommand, LoadOptions};

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationKind {
    Read,
    Readv,
    Pgread,
    Write,
    Pgwrite,
    Open,
    Stat,
    Dirlist,
    Connect,
    Idle,
}

impl OperationKind {
    /// Reports whether connections have a file open for reading.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Readv | Self::Pgread)
    }

    /// Reports whether each connection has a file of its own open for writing.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Pgwrite)
    }

    /// Reports whether throughput is measured in bytes.
    pub(super) fn moves_data(self) -> bool {
        self.reads() || self.writes()
    }
}

/// A load.
#[derive(Debug)]
pub(super) struct LoadPlan {
    pub(super) name: &'static str,
    pub(super) kind: OperationKind,
    pub(super) url: Url,
    /// Number of values of `%d` in the path, or 1 if the path has none.
    pub(super) files: u32,
    pub(super) sizes: Vec<u32>,
    pub(super) sequential: bool,
    pub(super) align: u64,
    pub(super) segments: u32,
    pub(super) gap: Option<u64>,
    /// Size at which writers start again at offset 0.
    pub(super) file_size: u64,
    pub(super) keep: bool,
    pub(super) with_stat: bool,
    /// Set if the files do not exist.
    pub(super) missing: bool,
    pub(super) connections: usize,
    pub(super) depth: usize,
    pub(super) duration: Duration,
    pub(super) warmup: Duration,
    pub(super) operations: Option<u64>,
    pub(super) cpu: Option<u32>,
    pub(super) servers: Vec<u32>,
    pub(super) verify: bool,
    pub(super) discard: bool,
    pub(super) spin: bool,
    /// Connections resume TLS sessions.
    pub(super) resumes: bool,
    pub(super) json: bool,
}

const READ_BYTES: u32 = 2 << 10;
const STREAM_BYTES: u32 = 1 << 20;

impl LoadPlan {
    /// Validates the command line.
    pub(super) fn new(load: LoadCommand) -> anyhow::Result<Self> {
        let plan = match load {
            LoadCommand::Read(read) => Self::reading("read", OperationKind::Read, read)?,
            LoadCommand::Stream(mut read) => {
                read.sequential = true;
                if read.size.is_empty() {
                    read.size.push(STREAM_BYTES);
                }
                Self::reading("stream", OperationKind::Read, read)?
            }
            LoadCommand::Pgread(read) => Self::reading("pgread", OperationKind::Pgread, read)?,
            LoadCommand::Readv(readv) => Self {
                sizes: vec![readv.size],
                segments: readv.segments,
                gap: readv.gap,
                align: readv.align,
                depth: readv.depth.depth as usize,
                files: readv.files.files,
                ..Self::checking(Self::common("readv", OperationKind::Readv, readv.common)?, &readv.check)
            },
            LoadCommand::Write(write) => Self::writing("write", OperationKind::Write, write)?,
            LoadCommand::Pgwrite(write) => Self::writing("pgwrite", OperationKind::Pgwrite, write)?,
            LoadCommand::Open(names) => Self::naming("open", OperationKind::Open, names)?,
            LoadCommand::Stat(names) => Self::naming("stat", OperationKind::Stat, names)?,
            LoadCommand::Dirlist(list) => Self {
                depth: list.depth.depth as usize,
                with_stat: !list.plain,
                verify: list.verify,
                ..Self::common("dirlist", OperationKind::Dirlist, list.common)?
            },
            LoadCommand::Connect(connect) => Self::common("connect", OperationKind::Connect, connect.common)?,
            LoadCommand::Idle(connect) => Self::common("idle", OperationKind::Idle, connect.common)?,
            LoadCommand::Gen(_) => bail!("gen is no load"),
        };
        plan.check()?;
        Ok(plan)
    }

    fn reading(name: &'static str, kind: OperationKind, read: options::ReadLoad) -> anyhow::Result<Self> {
        Ok(Self {
            sizes: if read.size.is_empty() { vec![READ_BYTES] } else { read.size },
            sequential: read.sequential,
            align: read.align,
            depth: read.depth.depth as usize,
            files: read.files.files,
            ..Self::checking(Self::common(name, kind, read.common)?, &read.check)
        })
    }

    fn writing(name: &'static str, kind: OperationKind, write: options::WriteLoad) -> anyhow::Result<Self> {
        Ok(Self {
            sizes: write.size,
            sequential: true,
            depth: write.depth.depth as usize,
            file_size: write.file_size,
            keep: write.keep,
            verify: write.verify,
            ..Self::common(name, kind, write.common)?
        })
    }

    fn naming(name: &'static str, kind: OperationKind, names: options::PathLoad) -> anyhow::Result<Self> {
        Ok(Self {
            depth: names.depth.depth as usize,
            files: names.files.files,
            sequential: names.sequential,
            missing: names.missing,
            ..Self::common(name, kind, names.common)?
        })
    }

    fn checking(plan: Self, check: &DataCheckOptions) -> Self {
        Self { verify: check.verify, discard: check.discard, ..plan }
    }

    fn common(name: &'static str, kind: OperationKind, common: LoadOptions) -> anyhow::Result<Self> {
        let url = Url::parse(&common.url).with_context(|| format!("`{}`", common.url))?;
        Ok(Self {
            name,
            kind,
            url,
            files: 1,
            sizes: vec![0],
            sequential: false,
            align: 1,
            segments: 1,
            gap: None,
            file_size: 0,
            keep: false,
            with_stat: true,
            missing: false,
            connections: common.connections as usize,
            depth: 1,
            duration: common.duration,
            warmup: if common.operations.is_some() { Duration::ZERO } else { common.warmup },
            operations: common.operations,
            cpu: common.cpu,
            servers: common.server_pid,
            verify: false,
            discard: false,
            spin: common.spin,
            resumes: common.resume,
            json: common.json,
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        let path = &self.url.path;
        match self.url.scheme {
            Scheme::Root | Scheme::Roots => {}
            _ => bail!("{}: not an xroot server; use root://HOST//PATH", self.url),
        }
        if !matches!(self.kind, OperationKind::Connect | OperationKind::Idle) && !path.starts_with('/') {
            bail!("`{path}` is not absolute: write root://{}//PATH, with two slashes", self.url.authority());
        }
        if self.files != 1 && !path.contains("%d") {
            bail!("`{path}` has no %d, so it names one file, not {}", self.files);
        }
        if self.discard && self.url.scheme == Scheme::Roots {
            bail!("--discard: the kernel cannot discard encrypted data; leave the option out");
        }
        if self.align == 0 {
            bail!("--align 0: use at least 1");
        }
        if self.kind.writes() && self.file_size < self.largest() {
            bail!("--file-size must not be less than --size ({} bytes)", self.largest());
        }
        Ok(())
    }

    /// Returns the size of the largest request, or of the longest segment of a readv.
    pub(super) fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(0).into()
    }

    /// Returns the size of the largest file range that one operation accesses.
    pub(super) fn span(&self) -> u64 {
        match self.gap {
            Some(gap) => (self.largest() + gap) * u64::from(self.segments),
            None => self.largest(),
        }
    }

    /// Returns the path for a number.
    pub(super) fn path(&self, number: usize) -> RemotePath {
        let text = number.to_string();
        let numbered = if self.url.path.contains("%d") {
            self.url.path.replace("%d", &text)
        } else if self.kind.writes() {
            format!("{}.{text}", self.url.path)
        } else {
            return self.url.path.clone();
        };
        // Only digits were added.
        RemotePath::new(numbered).unwrap_or_default()
    }

    /// Returns the number of bytes received for `length` bytes at `offset`.
    pub(super) fn answer_bytes(&self, offset: u64, length: u32) -> u64 {
        match self.kind {
            OperationKind::Pgread => pages::interleaved_length(offset, length as usize) as u64,
            _ => length.into(),
        }
    }
}
