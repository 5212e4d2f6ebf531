//! `scalla query`.

use client::xroot::codes::QueryType;
use client::xroot::flags::ServerFlags;
use client::{Error, ServerInfo, Url};
use serde_json::json;

use super::columns::{self, Align};
use super::console::Console;
use super::context::Context;
use crate::json_failures;

/// Default keys of a configuration query.
const KEYS: [&str; 14] = [
    "version",
    "role",
    "sitename",
    "chksum",
    "tpc",
    "bind_max",
    "pio_max",
    "readv_ior_max",
    "readv_iov_max",
    "fattr",
    "window",
    "wan_window",
    "cms",
    "start",
];

/// Query servers for their properties and those of their files.
#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct QueryCommand {
    #[command(subcommand)]
    task: QueryTask,
}

#[derive(clap::Subcommand, Debug)]
enum QueryTask {
    /// Print role, version, protocol, features and response time of the server.
    Server(Where),
    /// Print configuration values of the server.
    Config {
        #[command(flatten)]
        of: Where,
        /// Names of the values; the default is the common ones.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Print the checksum types of the server, its first type first.
    Checksums(Where),
    /// Print the statistics of the server as XML.
    Stats {
        #[command(flatten)]
        of: Where,
        /// Statistics by letter: a all, b buffers, d polling, i identity, l connections, p
        /// protocol, s scheduling, u usage.
        #[arg(default_value = "a")]
        letters: String,
    },
    /// Print the space in the format of the server; scalla space prints it in readable form.
    Space(Where),
    /// Print the attributes of a file in the format of the server.
    Attributes(Where),
    /// Send a query to a plug-in of the server.
    Opaque {
        #[command(flatten)]
        of: Where,
        /// Text of the query; the default is the path of the URL with its cgi.
        question: Option<String>,
    },
}

#[derive(clap::Args, Debug)]
struct Where {
    /// The server, or a file on it.
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Print lines of JSON.
    #[arg(long)]
    json: bool,
}

impl QueryCommand {
    const fn at(&self) -> &Where {
        match &self.task {
            QueryTask::Server(of)
            | QueryTask::Checksums(of)
            | QueryTask::Space(of)
            | QueryTask::Attributes(of) => of,
            QueryTask::Config { of, .. } | QueryTask::Stats { of, .. } | QueryTask::Opaque { of, .. } => of,
        }
    }

    pub(super) const fn is_json(&self) -> bool {
        self.at().json
    }

    pub(super) async fn run(self, context: &Context, console: &Console) -> anyhow::Result<()> {
        let url = context.url(&self.at().url)?;
        let files = context.files(&url);
        let answered = match &self.task {
            QueryTask::Server(_) => self.server(context, console, &url).await,
            QueryTask::Config { keys, .. } if keys.is_empty() => {
                self.config(context, console, &url, &KEYS, false).await
            }
            QueryTask::Config { keys, .. } => {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                self.config(context, console, &url, &keys, true).await
            }
            QueryTask::Checksums(_) => self.checksums(context, console, &url).await,
            QueryTask::Stats { letters, .. } => {
                self.raw(console, &url, files.query(QueryType::STATS, letters).await)
            }
            QueryTask::Space(_) => {
                self.raw(console, &url, files.query(QueryType::SPACE, &url.target().text()).await)
            }
            QueryTask::Attributes(_) => {
                self.raw(console, &url, files.query(QueryType::XATTR, &url.target().text()).await)
            }
            QueryTask::Opaque { question: Some(question), .. } => {
                self.raw(console, &url, files.query(QueryType::OPAQUE, question).await)
            }
            QueryTask::Opaque { .. } => {
                self.raw(console, &url, files.query(QueryType::OPAQUF, &url.target().text()).await)
            }
        };
        if let Err(error) = answered {
            console.fail(&url, &error);
        }
        Ok(())
    }

    /// Prints a reply in the server's own format.
    fn raw(&self, console: &Console, url: &Url, answer: Result<Vec<u8>, Error>) -> Result<(), Error> {
        let answer = answer?;
        let text = answer.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        if self.is_json() {
            console.json(json!({ "url": url.to_string(), "answer": text }));
        } else {
            console.lines(format_args!("{}\n", text.trim_end_matches('\n')));
        }
        Ok(())
    }

    async fn config(
        &self,
        context: &Context,
        console: &Console,
        url: &Url,
        keys: &[&str],
        named: bool,
    ) -> Result<(), Error> {
        let values = context.files(url).config(keys).await?;
        let mut rows = Vec::new();
        for (key, value) in keys.iter().zip(values) {
            if self.is_json() {
                let values = value.as_deref().map(|value| json_failures::values(key, value));
                console.json(json!({ "url": url.to_string(), "key": key, "value": value, "values": values }));
            } else if named && value.is_none() {
                console.fail_with(&[], &format!("{url}: the server has no value of {key}"));
            } else if let Some(value) = value {
                rows.push(vec![(*key).to_owned(), value]);
            }
        }
        // A single value is printed alone, for scripts.
        if let ([row], [_]) = (rows.as_slice(), keys) {
            console.line(row.last().map_or("", String::as_str));
        } else {
            console.put(&columns::table(&[Align::Left, Align::Left], &rows));
        }
        Ok(())
    }

    async fn checksums(&self, context: &Context, console: &Console, url: &Url) -> Result<(), Error> {
        let value = context.files(url).config(&["chksum"]).await?.pop().flatten().unwrap_or_default();
        // `0:adler32,1:crc32c`
        for kind in value.split(',').filter(|kind| !kind.is_empty()) {
            let kind = kind.split_once(':').map_or(kind, |(_, kind)| kind);
            if self.is_json() {
                console.json(json!({ "url": url.to_string(), "type": kind }));
            } else {
                console.line(kind);
            }
        }
        Ok(())
    }

    async fn server(&self, context: &Context, console: &Console, url: &Url) -> Result<(), Error> {
        let files = context.files(url);
        let ServerInfo { protocol_version, flags, .. } = files.server().await?;
        let took = files.ping().await?;
        let version = files.config(&["version"]).await.ok().and_then(|mut values| values.pop().flatten());
        let has = |flag| flags.contains(flag);
        let mut role = vec![if has(ServerFlags::IS_MANAGER) { "manager" } else { "server" }];
        let more = [
            (ServerFlags::ATTR_META, "meta"),
            (ServerFlags::ATTR_SUPER, "supervisor"),
            (ServerFlags::ATTR_PROXY, "proxy"),
            (ServerFlags::ATTR_CACHE, "cache"),
        ];
        role.extend(more.into_iter().filter(|(flag, _)| has(*flag)).map(|(_, name)| name));
        let can = [
            (ServerFlags::SUPPGRW, "page checksums"),
            (ServerFlags::SUPPOSC, "persist on successful close"),
            (ServerFlags::HAVE_TLS, "TLS"),
        ];
        let can: Vec<&str> = can.into_iter().filter(|(flag, _)| has(*flag)).map(|(_, name)| name).collect();
        let number = |shift: u32| (protocol_version >> shift) & 0xf;
        let protocol = format!("{}.{}.{}", protocol_version >> 8, number(4), number(0));
        let milliseconds = took.as_secs_f64() * 1e3;
        if self.is_json() {
            console.json(json!({
                "server": url.authority(), "role": role, "version": version, "protocol": protocol, "can": can,
                "milliseconds": milliseconds,
            }));
            return Ok(());
        }
        let rows = [
            ("server", url.authority()),
            ("role", role.join(", ")),
            ("version", version.unwrap_or_else(|| "?".to_owned())),
            ("protocol", protocol),
            ("can", can.join(", ")),
            ("answers in", format!("{milliseconds:.2} ms")),
        ];
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        console.put(&columns::table(&[Align::Left, Align::Left], &rows));
        Ok(())
    }
}
