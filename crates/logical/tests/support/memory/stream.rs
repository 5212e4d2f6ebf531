//! An open directory of the in-memory backend.

use super::Memory;
use base::LogicalPath;
use std::io;
use storage::{Backend, DirectoryStream, Metadata, RawEntry};

/// Returns the names of a directory as they were when it was opened.
pub struct Stream {
    pub memory: Memory,
    pub path: LogicalPath,
    pub names: Vec<Vec<u8>>,
    pub at: usize,
}

impl DirectoryStream for Stream {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        self.memory.faults.check("next")?;
        let page = self.names.iter().skip(self.at).take(most).map(|name| RawEntry {
            name: name.clone(),
            link: false,
            is_directory: None,
        });
        let page: Vec<_> = page.collect();
        self.at += page.len();
        Ok(page)
    }
    fn stat(&self, name: &[u8]) -> io::Result<Metadata> {
        self.memory.stat(&self.path.join(name).unwrap())
    }
    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>> {
        self.memory.attribute(&self.path.join(name).unwrap(), attribute)
    }
}
