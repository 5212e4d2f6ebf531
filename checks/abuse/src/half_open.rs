//! Thousands of logins by `gsi` that stop half-way: each client takes the server's part of the key
//! agreement, which is the most expensive one, and never answers.
//!
//! The clients have many addresses of the loopback network, so that no limit of one host stops them.
//! The well-behaved client is exempt from authentication by its address.

use crate::raw::{AUTH, RawClient, login, request};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Clients of one address. A server accepts 1,024 pending logins of a host.
const CLIENTS_PER_ADDRESS: usize = 500;

/// Time after which a server ends a login that makes no progress, and some more for the clients
/// whose steps had to wait for a thread.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(60 + 60);

/// Steps and fields of the messages of `gsi`.
const CLIENT_REQUEST: u32 = 1000;
const CRYPTO_MODULE: u32 = 3000;
const MAIN: u32 = 3001;
const CHALLENGE: u32 = 3006;
const VERSION: u32 = 3014;
const CLIENT_OPTIONS: u32 = 3019;
const ISSUER_HASH: u32 = 3023;

/// Status of a reply that asks for more credentials.
const AUTH_MORE: u16 = 4002;

/// Makes a certificate of a server, and returns the lines of its configuration.
pub(crate) fn prepare(directory: &Path) -> Result<Vec<String>> {
    let openssl = |words: &str| -> Result<String> {
        let mut command = Command::new("openssl");
        let output = command.args(words.split(' ')).current_dir(directory).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /O=Abuse/CN=Authority",
    )?;
    let authorities = directory.join("authorities");
    fs::create_dir(&authorities)?;
    let hash = openssl("x509 -subject_hash -noout -in ca.pem")?;
    fs::copy(directory.join("ca.pem"), authorities.join(format!("{hash}.0")))?;
    openssl("req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /O=Abuse/CN=localhost")?;
    fs::write(
        directory.join("host.ext"),
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n",
    )?;
    openssl(
        "x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile host.ext -out host.pem",
    )?;
    fs::set_permissions(directory.join("host.key"), fs::Permissions::from_mode(0o600))?;
    let shown = directory.display();
    Ok(vec![
        "xrd.network nodnr".to_owned(),
        "xrootd.seclib libXrdSec.so".to_owned(),
        format!(
            "sec.protocol gsi -certdir:{shown}/authorities -cert:{shown}/host.pem -key:{shown}/host.key -crl:0 -vomsat:0"
        ),
        "sec.protbind *:127.0.0.1] none".to_owned(),
        "sec.protbind * only gsi".to_owned(),
    ])
}

/// Holds this number of logins half-open. Half of the clients leave after a while; if `until_ended`,
/// the server must end the others.
pub(crate) fn hold(port: u16, count: usize, until_ended: bool) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..count {
        let address = u8::try_from(1 + number / CLIENTS_PER_ADDRESS).context("too many clients")?;
        clients.push(begin(Ipv4Addr::new(127, 0, 1, address), port)?);
    }
    // All are pending before the first one costs the server more than its connection.
    for (client, request) in &mut clients {
        client.push(request);
    }
    let mut clients: Vec<RawClient> = clients.into_iter().map(|(client, _)| client).collect();
    // Otherwise the messages would not be valid ones, and the campaign would test refusals.
    let first = clients.first_mut().context("no clients")?;
    let (status, _) = first.reply().context("the first key agreement")?;
    ensure!(status == AUTH_MORE, "status {status} instead of a key agreement");
    std::thread::sleep(crate::campaigns::STAY);
    let others = clients.split_off(count / 2);
    clients.into_iter().for_each(RawClient::vanish);
    let begun = Instant::now();
    for mut client in others {
        if until_ended {
            let left = LOGIN_TIME_MAX.saturating_sub(begun.elapsed());
            await_end(&mut client, left)?;
        }
        client.vanish();
    }
    Ok(())
}

/// Connects from an address and logs in. Also returns the request with the first message of `gsi`.
fn begin(source: Ipv4Addr, port: u16) -> Result<(RawClient, Vec<u8>)> {
    let mut client = RawClient::silent_from(source, port)?;
    client.send(&crate::raw::handshake())?;
    client.reply()?;
    let offer = client.ask(&login())?;
    let offer = String::from_utf8_lossy(offer.get(16..).unwrap_or_default()).into_owned();
    let Some((_, hashes)) = offer.split_once("ca:") else { bail!("no gsi in {offer:?}") };
    let hashes: String =
        hashes.chars().take_while(|one| one.is_ascii_hexdigit() || ".|".contains(*one)).collect();
    let main = message(&[(CHALLENGE, b"halfopen")]);
    let credentials = message(&[
        (CRYPTO_MODULE, b"ssl"),
        (VERSION, &10_600u32.to_be_bytes()),
        (ISSUER_HASH, hashes.as_bytes()),
        (CLIENT_OPTIONS, &[0; 4]),
        (MAIN, &main),
    ]);
    let mut body = [0; 16];
    body[12..15].copy_from_slice(b"gsi");
    Ok((client, request(AUTH, body, &credentials)))
}

fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = [b"gsi\0".as_slice(), &CLIENT_REQUEST.to_be_bytes()].concat();
    for (kind, content) in fields {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        bytes.extend([&kind.to_be_bytes(), &length.to_be_bytes(), *content].concat());
    }
    bytes.extend([0; 4]);
    bytes
}

/// Reads until the server ends the connection.
fn await_end(client: &mut RawClient, left: Duration) -> Result<()> {
    client.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
    let mut buffer = [0; 4096];
    loop {
        match client.stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => bail!("the server has not ended a half-open login: {error}"),
        }
    }
}
