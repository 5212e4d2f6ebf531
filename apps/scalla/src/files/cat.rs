//! `scalla cat`: prints files.

use client::{Caching, Error, OpenWith, Reader, Url, WholeRead};

use super::console::Console;
use super::context::Context;

/// Bytes per request.
pub(super) const CHUNK: usize = 1 << 20;

/// Print files.
#[derive(clap::Args, Debug)]
pub(crate) struct CatCommand {
    /// Files to print; may contain wildcards.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
    urls: Vec<String>,
}

impl CatCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        for url in context.expand(console, &self.urls).await? {
            if let Err(error) = print_file(context, console, &url).await? {
                console.fail(&url, &error);
            }
        }
        Ok(())
    }
}

/// Prints a whole file with read-ahead.
async fn print_file(context: &Context, console: &Console, url: &Url) -> anyhow::Result<Result<(), Error>> {
    let (reader, mut whole) = match open_whole(context, url).await {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        let data = match reader.read(whole.offset(), CHUNK).await {
            Ok(data) => data,
            Err(error) => return Ok(Err(error)),
        };
        console.content(&data);
        console.flush_if_due().await?;
        match whole.advance(data.len(), CHUNK) {
            Ok(false) => {}
            Ok(true) => return Ok(reader.file().close().await),
            Err(cause) => return Ok(Err(Error::new("read", url, cause))),
        }
    }
}

/// Opens a file to read all of it from the beginning.
pub(super) async fn open_whole(context: &Context, url: &Url) -> Result<(Reader, WholeRead), Error> {
    let reader = open_sequential(context, url).await?;
    let whole = WholeRead::of(reader.file()).await?;
    Ok((reader, whole))
}

/// Opens a file for sequential reading.
pub(super) async fn open_sequential(context: &Context, url: &Url) -> Result<Reader, Error> {
    let file = context.client.open(url, &OpenWith::read()).await?;
    Ok(Reader::new(file, Caching::READ_AHEAD, true))
}
