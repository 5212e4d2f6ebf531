//! Seeds from the recorded exchanges in `vectors/`, so that a fuzzer starts with real traffic.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use auth::grid::certificates_of_pem;
use serde_json::Value;
use wire::FixedLayout;
use wire::xroot::{Request, RequestHeader};

/// Maximum length of a seed in bytes. Longer frames contain file data, which adds no coverage.
const SEED_BYTES_MAX: usize = 2048;

/// Returns all seeds of a target: those derived from recorded exchanges, and the files of its
/// corpus directory.
///
/// # Errors
/// A file that cannot be read.
pub fn of(target: &str) -> anyhow::Result<BTreeSet<Vec<u8>>> {
    let mut seeds = recorded(target)?;
    let directory = here().join("corpus").join(target);
    if directory.is_dir() {
        for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            seeds.insert(std::fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(seeds)
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the seeds of a target from the recorded exchanges.
fn recorded(target: &str) -> anyhow::Result<BTreeSet<Vec<u8>>> {
    let mut seeds = BTreeSet::new();
    match target {
        "requests" => each_frame("c2s", |bytes| seeds.extend([bytes]))?,
        "replies" => each_frame("s2c", |bytes| seeds.extend([bytes]))?,
        "cms" => each_cms_frame(|bytes| seeds.extend([bytes]))?,
        "cgi" => each_argument(|argument| seeds.extend([argument.to_vec()]))?,
        "paths" => each_argument(|argument| seeds.extend([base::Cgi::split(argument).0.to_vec()]))?,
        "credentials" => each_credentials(|bytes| seeds.extend([bytes]))?,
        "gsi_messages" => seeds.extend(messages_of("gsi.json", "v:10600,c:ssl,ca:5cdab576.0|606cb0fc.0")?),
        "pwd_messages" => seeds.extend(messages_of("pwd.json", "v:10100,id:secret12,c:ssl")?),
        "krb5_messages" => {
            seeds.extend(messages_of("krb5.json", "xrootd/localhost@TEST.EXAMPLE,fwd")?);
            seeds.extend([b"krb5\0\x6e\x81\x80".iter().copied().chain([7; 128]).collect()]);
        }
        "voms_maps" => seeds.extend(voms_maps()?),
        "voms_signers" => seeds.extend(SIGNERS.iter().map(|file| file.as_bytes().to_vec())),
        "monitoring" => seeds.extend(crate::monitoring::seeds()),
        "keytabs" => seeds.extend(keytab_lines()?),
        "cinfo_files" => {
            seeds.extend([include_bytes!("../../../crates/cache/tests/vectors/two-opens.cinfo").to_vec()])
        }
        "grid_chains" => seeds.extend(grid_chains()?),
        "macaroons" => seeds.extend(macaroons()?),
        "tokens" => each_token(|bytes| seeds.extend([bytes]))?,
        "journals" => seeds.extend([crate::journals::checkpoint_seed()]),
        "sessions" => each_conversation(|frames| {
            let mut seed = crate::sessions::seed(&frames);
            seeds.insert(seed.clone());
            // The same input with required signatures, and with required authentication.
            for setting in [1, 3] {
                if let Some(first) = seed.first_mut() {
                    *first = setting;
                }
                seeds.insert(seed.clone());
            }
        })
        .map(|()| seeds.extend((0..64).map(crate::sessions::pipelined_seed)))?,
        "stored_attributes" => {
            for algorithm in digest::Algorithm::ALL {
                let checksum = digest::RunningChecksum::of(algorithm, b"123456789");
                seeds.insert(
                    digest::ChecksumRecord::new(checksum, 1_795_257_271, 1_795_257_273).encode().to_vec(),
                );
            }
        }
        _ => {}
    }
    Ok(seeds)
}

/// Calls `take` for the arguments of recorded requests.
fn each_argument(mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    each_frame("c2s", |bytes| {
        let Some((header, payload)) = bytes.split_first_chunk() else { return };
        match Request::decode(&RequestHeader::from_bytes(header), payload) {
            Ok(Request::Open(open)) => take(open.target),
            Ok(Request::Login(login)) => take(login.cgi),
            Ok(Request::Query(query)) => take(query.args),
            Ok(Request::Dirlist(list)) => take(list.path),
            Ok(Request::Stat(stat)) => take(stat.path),
            Ok(Request::Mkdir(mkdir)) => take(mkdir.path),
            _ => {}
        }
    })
}

/// Calls `take` for the recorded frames of one direction.
fn each_frame(direction: &str, mut take: impl FnMut(Vec<u8>)) -> anyhow::Result<()> {
    each_connection(|frames| {
        for frame in frames {
            let of_xroot = matches!(frame["kind"].as_str(), Some("request" | "response"));
            if of_xroot && frame["dir"] == direction && frame["len"].as_u64() <= Some(SEED_BYTES_MAX as u64) {
                take(bytes_of(frame)?);
            }
        }
        Ok(())
    })
}

/// Calls `take` for the recorded credentials and lists of protocols of `sss`.
fn each_credentials(mut take: impl FnMut(Vec<u8>)) -> anyhow::Result<()> {
    let vector = read(&here().join("../../vectors/security/sss.json"))?;
    for connection in vector["connections"].as_array().into_iter().flatten() {
        for frame in connection["frames"].as_array().into_iter().flatten() {
            let bytes = bytes_of(frame)?;
            // Credentials follow the header of the request, which is as long as the header and the
            // session id of a reply in front of the list of protocols.
            if frame["request"] == "kXR_auth" || frame["response_to"] == "kXR_login" {
                take(bytes.get(24..).unwrap_or_default().to_vec());
            }
        }
        for decoded in connection["decoded"].as_array().into_iter().flatten() {
            let plain = unhex(decoded["plaintext_hex"].as_str().unwrap_or_default());
            take(plain.context("not hexadecimal")?.get(40..).unwrap_or_default().to_vec());
        }
    }
    Ok(())
}

/// Calls `take` for the recorded credentials of `ztn`, the tokens in them, and recorded claims.
fn each_token(mut take: impl FnMut(Vec<u8>)) -> anyhow::Result<()> {
    let vector = read(&here().join("../../vectors/security/ztn.json"))?;
    for connection in vector["connections"].as_array().into_iter().flatten() {
        let frames = connection["frames"].as_array().into_iter().flatten();
        for frame in frames.filter(|frame| frame["request"] == "kXR_auth") {
            let credentials = bytes_of(frame)?.get(24..).unwrap_or_default().to_vec();
            let token = credentials.get(10..).unwrap_or_default().split(|byte| *byte == 0).next();
            take(token.unwrap_or_default().to_vec());
            take(credentials);
        }
        take(connection["decoded"]["jwt_claims"].to_string().into_bytes());
    }
    let vector = read(&here().join("../../vectors/security/scitokens.json"))?;
    for case in vector["cases"].as_array().into_iter().flatten() {
        let mut claims = vector["default_claims"].clone();
        for (name, value) in case["claims_changed"].as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        take(claims.to_string().replace("\"now+1200\"", "1795189999").into_bytes());
    }
    Ok(())
}

/// Returns the recorded messages of `gsi` or `pwd`, plain and encrypted, the texts in them, and the
/// parameters of a server.
fn messages_of(recording: &str, parameters: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let vector = read(&here().join("../../vectors/security").join(recording))?;
    let mut seeds = vec![parameters.as_bytes().to_vec()];
    for connection in vector["connections"].as_array().into_iter().flatten() {
        for frame in connection["frames"].as_array().into_iter().flatten() {
            if frame["request"] == "kXR_auth" {
                seeds.push(bytes_of(frame)?.get(24..).unwrap_or_default().to_vec());
            } else if frame["status"] == "kXR_authmore" {
                seeds.push(bytes_of(frame)?.get(8..).unwrap_or_default().to_vec());
            }
        }
        for decoded in connection["decoded"].as_array().into_iter().flatten() {
            seeds.extend(decoded["main_plain_hex"].as_str().and_then(unhex));
            seeds.extend(decoded["cipher_recovered"].as_str().map(|text| text.as_bytes().to_vec()));
        }
    }
    Ok(seeds)
}

/// Returns the computed macaroons, their packets, and caveats.
fn macaroons() -> anyhow::Result<Vec<Vec<u8>>> {
    let vector = read(&here().join("../../vectors/security/macaroon.json"))?;
    let mut seeds = Vec::new();
    let known = [&vector["known_answer"], &vector["issued"]];
    for case in known.into_iter().chain(vector["cases"].as_array().into_iter().flatten()) {
        seeds.extend(case["token"].as_str().map(|token| token.as_bytes().to_vec()));
    }
    let caveats = vector["issued"]["caveats"].as_array().into_iter().flatten();
    let caveats: Vec<&str> = caveats.filter_map(|caveat| caveat.as_str()).collect();
    seeds.push(caveats.iter().skip(1).copied().collect::<Vec<_>>().join("\n").into_bytes());
    seeds.push(b"path:/data/sub\nactivity:LIST,DELETE\nbefore:2026-11-21T11:30:00Z\npath:/other".to_vec());
    seeds.extend(vector["secret_base64"].as_str().map(|secret| secret.as_bytes().to_vec()));
    Ok(seeds)
}

/// Returns the recorded grid certificates as PEM, as chains in DER and one by one, their revocation list,
/// a grid map, and policies.
fn grid_chains() -> anyhow::Result<Vec<Vec<u8>>> {
    let vector = read(&here().join("../../vectors/security/gsi.json"))?;
    let text = |key: &str| vector["keys"][key].as_str().unwrap_or_default().as_bytes().to_vec();
    let first = |key: &str| -> anyhow::Result<Vec<u8>> {
        let text = String::from_utf8_lossy(&text(key)).into_owned();
        let end = text.find("-----END CERTIFICATE-----\n").context("no certificate")?;
        Ok(certificates_of_pem(text.get(..end + 26).unwrap_or_default().as_bytes())?.concat())
    };
    let mut seeds = vec![text("ca_cert_pem"), text("user_cert_pem"), text("crl_pem"), text("user_proxy_pem")];
    let (user, authority) = (first("user_cert_pem")?, first("ca_cert_pem")?);
    for chain in [
        vec![first("user_proxy_pem")?, user.clone()],
        vec![first("revoked_proxy_pem")?, first("revoked_cert_pem")?],
        vec![first("host_cert_pem")?],
        vec![user.clone(), authority.clone()],
        vec![authority],
    ] {
        seeds.push(crate::grid_chains::joined(&chain));
    }
    // The name of its issuer.
    seeds.extend(user.get(32..94).map(<[u8]>::to_vec));
    let names = read(&here().join("../../vectors/security/names.json"))?;
    seeds.extend(names["gridmap"]["file"].as_str().map(|map| map.as_bytes().to_vec()));
    seeds.push(
        b"access_id_CA X509 '/CN=A'\npos_rights globus CA:sign\ncond_subjects globus '\"/DC=org/*\"'\n"
            .to_vec(),
    );
    seeds.push(b"TO Issuer \"/CN=A\" \\\n PERMIT Subject \"/DC=org/.*\"\n".to_vec());
    Ok(seeds)
}

/// Files of signers: one list, several, comments of other programs, and malformed ones.
const SIGNERS: [&str; 6] = [
    "/DC=ch/DC=cern/OU=computers/CN=voms2.cern.ch\n/DC=ch/DC=cern/CN=CERN Grid Certification Authority\n",
    "/C=IT/CN=voms\n/C=IT/CN=CA\n------ NEXT CHAIN ------\n/C=IT/CN=voms\n/C=IT/CN=Sub\n/C=IT/CN=CA\n",
    "/CN=host/voms.example.org\n/Email=ca@example.org/CN=CA\n",
    "  /O=A/CN=x\\/y  \r\n\n/O=A/emailAddress=a@b/CN=CA",
    "/O=A/CN=alone\n",
    "-\n/O=A\n/O=B\n-\n",
];

/// Returns the recorded map of groups, its lines, and lines with each escape.
fn voms_maps() -> anyhow::Result<Vec<Vec<u8>>> {
    let names = read(&here().join("../../vectors/security/names.json"))?;
    let file = names["voms_mapfile"]["file"].as_str().context("no map file")?;
    let mut seeds: Vec<Vec<u8>> = file.lines().map(|line| line.as_bytes().to_vec()).collect();
    seeds.push(file.as_bytes().to_vec());
    seeds.push(b"\"/a\\/b/\\\"c\\\\d\\'\\f\\n\\r\\t/*\" user\n# \n\"/*/Role=*/Capability=NULL\" b".to_vec());
    Ok(seeds)
}

/// Returns the recorded lines of a key table.
fn keytab_lines() -> anyhow::Result<Vec<Vec<u8>>> {
    let vector = read(&here().join("../../vectors/security/sss.json"))?;
    let lines = vector["keys"]["keytab_lines"].as_array().into_iter().flatten();
    Ok(lines.filter_map(|key| Some(key["line"].as_str()?.as_bytes().to_vec())).collect())
}

/// Calls `take` for the recorded frames between nodes of a cluster.
fn each_cms_frame(mut take: impl FnMut(Vec<u8>)) -> anyhow::Result<()> {
    for path in scenarios("vectors/cms")? {
        let scenario = read(&path)?;
        for event in scenario["events"].as_array().into_iter().flatten() {
            let Some(hex) = event["hex"].as_str() else { continue };
            let bytes = unhex(hex).with_context(|| format!("{}: not hexadecimal", path.display()))?;
            if bytes.len() <= SEED_BYTES_MAX {
                take(bytes);
            }
        }
    }
    Ok(())
}

/// Calls `take` for each recorded connection with the frames of the client, from its handshake to
/// the first truncated frame.
fn each_conversation(mut take: impl FnMut(Vec<Vec<u8>>)) -> anyhow::Result<()> {
    each_connection(|frames| {
        let sent = frames.iter().filter(|frame| frame["dir"] == "c2s");
        let kept = sent.take_while(|frame| {
            let of_xroot = matches!(frame["kind"].as_str(), Some("handshake" | "request"));
            of_xroot && frame["truncated"] != true
        });
        take(kept.map(bytes_of).collect::<anyhow::Result<_>>()?);
        Ok(())
    })
}

fn bytes_of(frame: &Value) -> anyhow::Result<Vec<u8>> {
    unhex(frame["hex"].as_str().unwrap_or_default()).context("not hexadecimal")
}

/// Calls `take` with the frames of each recorded connection.
fn each_connection(mut take: impl FnMut(&[Value]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for path in scenarios("vectors/xroot")? {
        let scenario = read(&path)?;
        for connection in scenario["connections"].as_array().into_iter().flatten() {
            if let Some(frames) = connection["frames"].as_array() {
                take(frames).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Returns the recorded scenarios in a directory of the repository, in the order of their names.
fn scenarios(directory: &str) -> anyhow::Result<Vec<PathBuf>> {
    let directory = here().join("../..").join(directory);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| odd.is_empty())
}
