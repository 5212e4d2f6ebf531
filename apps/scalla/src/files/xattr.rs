//! `scalla xattr`.

use client::{Error, FileSystem, RemotePath, Url};
use serde_json::{Value, json};

use super::console::Console;
use super::context::Context;
use super::mv_truncate::at_holders;
use crate::usage_error::UsageError;

/// Read and change extended attributes of files.
#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct XattrCommand {
    #[command(subcommand)]
    task: XattrTask,
}

#[derive(clap::Subcommand, Debug)]
enum XattrTask {
    /// List all attributes with their values.
    List {
        /// Files; may contain wildcards.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url, required = true)]
        urls: Vec<String>,
        /// Print each result as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the values of attributes.
    Get {
        /// The file.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
        url: String,
        /// Names of the attributes.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Print only the bytes of the values.
        #[arg(long)]
        raw: bool,
        /// Print each result as one line of JSON.
        #[arg(long, conflicts_with = "raw")]
        json: bool,
    },
    /// Set attributes.
    Set {
        /// The file.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
        url: String,
        /// Names and values of the attributes.
        #[arg(value_name = "NAME=VALUE", required = true)]
        attributes: Vec<String>,
        /// Set only attributes that do not exist.
        #[arg(long, short = 'n')]
        new: bool,
    },
    /// Remove attributes.
    Rm {
        /// The file.
        #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
        url: String,
        /// Names of the attributes.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

impl XattrCommand {
    pub(super) const fn is_json(&self) -> bool {
        matches!(self.task, XattrTask::List { json: true, .. } | XattrTask::Get { json: true, .. })
    }

    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        match &self.task {
            XattrTask::List { urls, json } => list(context, console, urls, *json).await,
            XattrTask::Get { url, names, raw, json } => {
                let url = context.url(url)?;
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                match context.files(&url).attribute_values(&url.path, &names).await {
                    Ok(values) => {
                        for (name, value) in values {
                            print_attributes(console, &url, &name, value.as_deref(), *raw, *json);
                        }
                    }
                    Err(error) => console.fail(&url, &error),
                }
                Ok(())
            }
            XattrTask::Set { url, attributes, new } => {
                let url = context.url(url)?;
                let pairs: Option<Vec<(String, Vec<u8>)>> =
                    attributes.iter().map(|text| pair(text)).collect();
                let pairs =
                    pairs.ok_or_else(|| UsageError("an attribute is set with NAME=VALUE".to_owned()))?;
                let new = *new;
                let set = |server: FileSystem, path: RemotePath| {
                    let pairs = pairs.clone();
                    async move {
                        let pairs: Vec<(&str, &[u8])> =
                            pairs.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
                        server.set_attributes(&path, &pairs, new).await
                    }
                };
                done(console, &url, at_holders(&context.files(&url), &url.path, set).await);
                Ok(())
            }
            XattrTask::Rm { url, names } => {
                let url = context.url(url)?;
                let remove = |server: FileSystem, path: RemotePath| {
                    let names = names.clone();
                    async move {
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        server.remove_attributes(&path, &names).await
                    }
                };
                done(console, &url, at_holders(&context.files(&url), &url.path, remove).await);
                Ok(())
            }
        }
    }
}

async fn list(context: &Context, console: &Console, urls: &[String], json: bool) -> anyhow::Result<()> {
    let urls = context.expand(console, urls).await?;
    let several = urls.len() > 1;
    for (index, url) in urls.iter().enumerate() {
        match context.files(url).list_attributes(&url.path).await {
            Ok(attributes) => {
                if several && !json {
                    console.heading(index > 0, format_args!("{}:", context.name(url)));
                }
                for found in attributes {
                    print_attributes(console, url, &found.name, Some(&found.value), false, json);
                }
            }
            Err(error) => console.fail(url, &error),
        }
        console.flush_if_due().await?;
    }
    Ok(())
}

fn pair(text: &str) -> Option<(String, Vec<u8>)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.as_bytes().to_vec()))
}

fn done(console: &Console, url: &Url, result: Result<(), Error>) {
    if let Err(error) = result {
        console.fail(url, &error);
    }
}

fn print_attributes(console: &Console, url: &Url, name: &str, value: Option<&[u8]>, raw: bool, json: bool) {
    let Some(value) = value else {
        let facts = [("url", url.to_string().into()), ("name", name.into())];
        console.fail_with(&facts, &format!("{url} has no attribute {name}"));
        return;
    };
    let as_text = std::str::from_utf8(value);
    if raw {
        console.content(value);
    } else if json {
        let shown: (&str, Value) =
            as_text.map_or_else(|_| ("hex", hex(value).into()), |text| ("value", text.into()));
        console.json(json!({ "url": url.to_string(), "name": name, shown.0: shown.1 }));
    } else {
        let shown = as_text.map_or_else(|_| format!("0x{}", hex(value)), str::to_owned);
        console.line(format_args!("{name}={shown}"));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
