//! [`RemovalSummary`]: the number of entries and bytes that a removal concerns, counted before it
//! begins.

use std::collections::BTreeSet;
use std::fmt;

use client::{Error, FileSystem, Url};

use super::console::Console;
use super::context::Context;
use super::walk::DirectoryWalk;
use base::Size;

/// Counting stops here, because the confirmation prompt needs no larger number.
const COUNTED_MAX: u64 = 1_000_000;

/// Numbers of files, directories and bytes at servers.
#[derive(Default, Debug)]
pub(super) struct RemovalSummary {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) bytes: u64,
    servers: BTreeSet<String>,
    is_more: bool,
}

impl RemovalSummary {
    /// Adds everything at a URL, at all servers that have it. `each` is called for each entry, for
    /// a directory after its entries.
    ///
    /// # Errors
    /// [`Error`] of a server that does not return its entries.
    pub(super) async fn add(
        &mut self,
        context: &Context,
        console: &Console,
        url: &Url,
        mut each: impl FnMut(&Url),
    ) -> Result<(), Error> {
        let mut missing = None;
        let mut is_there = false;
        for server in context.files(url).servers(&url.path).await? {
            match server.stat(&url.path).await {
                Ok(stat) => {
                    is_there = true;
                    let url = server.url().at(url.path.clone());
                    self.servers.insert(url.authority());
                    if stat.is_dir() {
                        self.add_tree(console, &server, &url, &mut each).await?;
                    } else {
                        self.add_file(stat.size);
                        each(&url);
                    }
                }
                Err(error) if error.is_not_found() => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        missing.filter(|_| !is_there).map_or(Ok(()), Err)
    }

    async fn add_tree(
        &mut self,
        console: &Console,
        server: &FileSystem,
        url: &Url,
        each: &mut impl FnMut(&Url),
    ) -> Result<(), Error> {
        let mut walk = DirectoryWalk::begin(server, url).await?;
        let mut directories = Vec::new();
        while let Some(mut listed) = walk.next().await {
            walk.enter_all(&mut listed);
            if let Some(error) = listed.failed.into_iter().next() {
                return Err(error);
            }
            self.directories += 1;
            for entry in listed.entries.iter().filter(|entry| !entry.is_directory) {
                self.add_file(entry.size);
                each(&listed.url.at(listed.url.path.join(&entry.name)));
            }
            directories.push(listed.url);
            let seen = self.files + self.directories;
            console.progress(|| format!("{seen} counted"));
            if seen >= COUNTED_MAX {
                self.is_more = true;
                return Ok(());
            }
        }
        directories.iter().rev().for_each(each);
        Ok(())
    }

    fn add_file(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl fmt::Display for RemovalSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, directories, bytes, servers, is_more } = self;
        let least = if *is_more { "more than " } else { "" };
        let (file, directory) = (
            if *files == 1 { "file" } else { "files" },
            if *directories == 1 { "directory" } else { "directories" },
        );
        write!(f, "{least}{files} {file}, {}", Size(*bytes))?;
        if *directories > 0 {
            write!(f, ", {directories} {directory}")?;
        }
        if servers.len() > 1 {
            write!(f, ", at {} servers", servers.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_in_words() {
        let mut extent =
            RemovalSummary { files: 40, directories: 1, bytes: 19 << 20, ..RemovalSummary::default() };
        assert_eq!(extent.to_string(), "40 files, 19.00 MiB, 1 directory");
        extent.servers = ["a:1", "b:1", "c:1"].map(str::to_owned).into();
        assert_eq!(extent.to_string(), "40 files, 19.00 MiB, 1 directory, at 3 servers");
        let extent = RemovalSummary { files: 1, is_more: true, ..RemovalSummary::default() };
        assert_eq!(extent.to_string(), "more than 1 file, 0 B");
    }
}
