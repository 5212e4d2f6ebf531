//! Paths on this machine.

use anyhow::Context;
use std::path::{Path, PathBuf};

/// Returns an absolute path for a path that will be used from another directory.
pub(crate) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("`{}` is no path", path.display()))
}
