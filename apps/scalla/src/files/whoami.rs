//! `scalla auth whoami`.

use client::{Error, Url};
use serde_json::{Map, Value};

use super::columns::{self, Align};
use super::console::Console;
use super::context::Context;

/// Print the identity that a server assigns to you: the protocol of the authentication, and the names
/// that authorization rules compare.
#[derive(clap::Args, Debug)]
pub(crate) struct WhoamiCommand {
    /// The server.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl WhoamiCommand {
    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let url = context.url(&self.url)?;
        match self.ask(context, &url).await {
            Ok(Some(identity)) => self.show(console, &url, identity),
            Ok(None) => {
                let text = "the server does not report identities; only Scalla servers do";
                console.fail_with(&[], &format!("{url}: {text}"));
            }
            Err(error) => console.fail(&url, &error),
        }
        Ok(())
    }

    /// Returns the keys and values of the identity, if the server reports it.
    async fn ask(&self, context: &Context, url: &Url) -> Result<Option<Vec<(String, String)>>, Error> {
        let line = context.files(url).config(&[auth::IDENTITY_KEY]).await?.pop().flatten();
        Ok(line.and_then(|line| auth::decode_identity(&line)))
    }

    fn show(&self, console: &Console, url: &Url, identity: Vec<(String, String)>) {
        if self.json {
            let mut object = Map::new();
            object.insert("url".to_owned(), Value::String(url.to_string()));
            object.extend(identity.into_iter().map(|(key, value)| (key, Value::String(value))));
            console.json(Value::Object(object));
            return;
        }
        let is_authenticated = identity.iter().any(|(key, _)| key == "protocol");
        let none = ("protocol", "none: the server asks for no authentication");
        let none = (!is_authenticated).then(|| vec![none.0.to_owned(), none.1.to_owned()]);
        let known = identity.into_iter().map(|(key, value)| vec![key.replace('_', " "), value]);
        let rows: Vec<Vec<String>> = none.into_iter().chain(known).collect();
        console.put(&columns::table(&[Align::Left, Align::Left], &rows));
    }
}
