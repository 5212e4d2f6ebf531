//! Replays of the recorded exchanges in `vectors/security`, and of the packets that must be refused.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::Rng;
use serde_json::Value;

use super::cipher::FeedbackCipher;
use super::test_clock::TestClock;
use super::*;
use crate::client::{ClientAuthError, ClientContext, ClientProtocol};
use crate::entity::Entity;
use crate::offers::offered_protocols;
use crate::secret::Secret;
use crate::server::{LoginPeer, ServerProtocol, ServerStep};

/// Random numbers that were recorded.
#[derive(Default)]
struct RecordedRng(VecDeque<Vec<u8>>);

impl Rng for RecordedRng {
    fn fill(&mut self, into: &mut [u8]) {
        let recorded = self.0.pop_front().unwrap_or_else(|| vec![7; into.len()]);
        into.copy_from_slice(&recorded);
    }
}

fn load(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn keys(vector: &Value) -> Keytab {
    let lines: Vec<_> = list(&vector["keys"]["keytab_lines"]).iter().map(|key| text(key, "line")).collect();
    Keytab::parse(lines.join("\n").as_bytes()).unwrap()
}

/// Creates the server of the recording.
fn server(keys: Keytab, rng: RecordedRng) -> SssServer {
    let settings = SssServerSettings {
        client_keytab: Some(PathBuf::from("/etc/xrd/sss.client.keytab")),
        wants_credentials: true,
        forwarded_protocols: ["gsi", "krb5", "unix"].map(str::to_owned).to_vec(),
        ..SssServerSettings::new(PathBuf::from("/nonexistent"))
    };
    SssServer::with_keys(settings, keys, None, Box::new(rng), Arc::<TestClock>::default())
}

fn peer(address: &str) -> LoginPeer {
    let address = address.parse().unwrap_or_else(|_| "[::ffff:127.0.0.1]:1".parse().unwrap());
    LoginPeer { address, host: "[::ffff:127.0.0.1]".to_owned(), login_id: "tester".to_owned(), is_tls: false }
}

/// Returns the payloads of all requests of one code.
fn payloads(connection: &Value, request: &str) -> Vec<Vec<u8>> {
    let frames = list(&connection["frames"]).iter().filter(|frame| text(frame, "request") == request);
    frames.map(|frame| unhex(text(frame, "hex")).split_off(24)).collect()
}

/// Returns the address that a decoded packet names, in the form of an address.
fn claimed_address(decoded: &Value) -> String {
    let claimed =
        list(&decoded["items"]).iter().map(|item| text(item, "text")).find(|text| text.starts_with('['));
    claimed.unwrap_or_default().replace("[::127", "[::ffff:127")
}

fn assert_entity(entity: &Entity, expected: &Value, label: &str) {
    let shown = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let fields = [
        ("prot", Some(entity.protocol.to_string())),
        ("name", shown(&entity.name)),
        ("grps", shown(&entity.groups)),
        ("vorg", shown(&entity.vorg)),
        ("role", shown(&entity.role)),
        ("caps", shown(&entity.capabilities)),
        ("endorsements", shown(&entity.endorsements)),
        ("pident", shown(&entity.original_trace_id)),
    ];
    for (key, found) in fields {
        if let Some(expected) = expected.get(key) {
            assert_eq!(found.as_deref(), expected.as_str(), "{label}: {key}");
        }
    }
    // The test client sent a NUL behind the text, which belongs to the credential.
    let credentials = expected.get("creds").map(|creds| format!("{}\0", creds.as_str().unwrap()));
    let found = entity.credentials.as_ref().map(|secret| secret.expose());
    assert_eq!(found, credentials.as_deref().map(str::as_bytes), "{label}");
    for (key, value) in expected["attrs"].as_object().into_iter().flatten() {
        assert_eq!(entity.attribute(key), value.as_str(), "{label}");
    }
}

#[test]
fn the_cipher_has_the_known_answers() {
    let vector = load("primitives.json");
    let cases = list(&vector["blowfish_cfb64_zero_iv"]);
    assert_eq!(cases.len(), 7);
    for case in cases {
        let cipher = FeedbackCipher::new(&unhex(text(case, "key_hex")));
        let plain = unhex(text(case, "plain_hex"));
        for length in [plain.len(), plain.len() - 3] {
            let mut data = plain[..length].to_vec();
            cipher.encrypt(&mut data);
            assert_eq!(data, unhex(text(case, "cipher_hex"))[..length]);
            cipher.decrypt(&mut data);
            assert_eq!(data, plain[..length]);
        }
    }
}

#[test]
fn recorded_packets_are_decoded_and_encoded_to_the_same_bytes() {
    let vector = load("sss.json");
    let keys = keys(&vector);
    for connection in list(&vector["connections"]) {
        let label = text(connection, "label");
        let sent = payloads(connection, "kXR_auth");
        let decoded = list(&connection["decoded"]).iter().filter(|decoded| text(decoded, "dir") == "c2s");
        for (packet, decoded) in sent.iter().zip(decoded) {
            let (header, encrypted) = PacketHeader::decode(packet).unwrap();
            let name = header.key_name.as_deref().unwrap_or_default();
            assert_eq!(name, text(decoded, "keyname"), "{label}");
            let key = keys.find(header.key_id, None, 0).unwrap();
            let body = PacketBody::open(encrypted, &key.secret).unwrap();
            assert_eq!(body.time(), decoded["unix_time"].as_u64().unwrap(), "{label}");
            let mut again = PacketBody::new(body.random(), body.time(), body.asks_login_id());
            for (item, expected) in body.items().zip(list(&decoded["items"])) {
                let item = item.unwrap();
                assert_eq!(format!("{:02x}", item.kind.0), text(expected, "type"), "{label}");
                again.bytes(item.kind, &unhex(text(expected, "hex")));
            }
            assert_eq!(again.seal(&header, &key.secret), *packet, "{label}");
        }
    }
}

#[test]
fn the_server_decides_as_recorded() {
    let vector = load("sss.json");
    let keys = keys(&vector);
    for connection in list(&vector["connections"]) {
        let label = text(connection, "label");
        let decoded = list(&connection["decoded"]);
        let replies: Vec<_> = decoded.iter().filter(|decoded| text(decoded, "dir") == "s2c").collect();
        let random = |reply: &&Value| unhex(&text(reply, "plaintext_hex")[..64]);
        let server = server(keys.clone(), RecordedRng(replies.iter().map(random).collect()));
        assert_eq!(server.parameters(), "0.+013:/etc/xrd/sss.client.keytab");
        let address = decoded.last().map(claimed_address).unwrap_or_default();
        let mut login = server.begin(&peer(&address));
        let now = if label.starts_with("12 s old") {
            1_795_187_117
        } else {
            decoded[0]["unix_time"].as_u64().unwrap()
        };
        let mut last = None;
        for packet in payloads(connection, "kXR_auth") {
            last = Some(login.step(&packet, time(now)));
            if let Some(ServerStep::Continue(bytes)) = &last {
                let frames = list(&connection["frames"]);
                let sent = frames.iter().find(|frame| text(frame, "status") == "kXR_authmore").unwrap();
                assert_eq!(*bytes, unhex(text(sent, "hex"))[8..], "{label}");
            }
        }
        match (text(&connection["expect"], "result"), last.unwrap()) {
            ("ok", ServerStep::Done(entity)) => {
                assert_entity(&entity, &connection["expect"]["entity"], label)
            }
            ("refused", ServerStep::Refused(_)) => {}
            (_, step) => panic!("{label}: {step:?}"),
        }
    }
}

fn client_context(address: &str) -> ClientContext {
    ClientContext::new(address.parse().unwrap(), "vm", "s.o")
}

/// Writes a key table that only this user can read.
fn write_keytab(name: &str, content: &str) -> PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = std::env::temp_dir().join(format!("auth-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
    std::io::Write::write_all(&mut file, content.as_bytes()).unwrap();
    path
}

fn client(keytab: PathBuf, identity: IdentitySource, rng: RecordedRng) -> SssClient {
    let settings = SssClientSettings {
        keytab: Some(("XrdSecSSSKT", keytab)),
        home_keytab: None,
        endorsements: None,
        identity,
    };
    SssClient::new(settings, Arc::new(Mutex::new(rng)))
}

#[test]
fn the_client_sends_the_bytes_of_the_stock_client() {
    let vector = load("sss.json");
    let connection = &vector["connections"][0];
    let decoded = &connection["decoded"][0];
    let plain = unhex(text(decoded, "plaintext_hex"));
    let filler = list(&decoded["items"]).iter().find(|item| text(item, "type") == "07").unwrap();
    let rng = RecordedRng([plain[..32].to_vec(), unhex(text(filler, "hex"))].into());
    let keytab = write_keytab("stock", &keys(&vector).encode());
    let client = client(keytab.clone(), IdentitySource::Default, rng);
    let offers = offered_protocols(b"&P=sss,0.+013:/etc/xrd/sss.client.keytab");
    let context = client_context("127.0.0.1:59618");
    let mut login = client.begin(&offers[0], &context).unwrap();
    let packet = login.step(None, time(decoded["unix_time"].as_u64().unwrap())).unwrap();
    assert_eq!(packet, payloads(connection, "kXR_auth")[0]);
    let again = login.step(Some(&packet), time(0));
    assert!(matches!(again, Err(ClientAuthError::TooManySteps)));
    std::fs::remove_file(keytab).unwrap();
}

/// A real server refuses such a packet with "Invalid id string".
#[test]
fn the_filler_does_not_begin_with_a_nul() {
    let path = write_keytab("filler", "0 N:1 k:00");
    let offers = offered_protocols(b"&P=sss,0.+013:");
    let rng = RecordedRng([vec![0; 32], vec![0; 71]].into());
    let client = client(path.clone(), IdentitySource::Default, rng);
    let mut login = client.begin(&offers[0], &client_context("127.0.0.1:1")).unwrap();
    let packet = login.step(None, time(1_800_000_000)).unwrap();
    let (_, encrypted) = PacketHeader::decode(&packet).unwrap();
    let body = PacketBody::open(encrypted, &Secret::from(&[0][..])).unwrap();
    let filler = body.items().flatten().find(|item| item.kind == ItemKind::FILLER).unwrap();
    assert_eq!(filler.data.first(), Some(&1));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_identity_is_chosen_by_the_login_id_of_the_server() {
    let vector = load("sss.json");
    let path = write_keytab("dynamic", text(&vector["keys"]["keytab_lines"][1], "line"));
    let table = IdentityTable::default();
    assert!(table.insert("tester", SssIdentity::new("erin", "physics")));
    let source = IdentitySource::ByLoginId(Arc::new(table));
    let client = client(path.clone(), source, RecordedRng([vec![1; 32], vec![2; 32]].into()));
    let server = server(keys(&vector), RecordedRng::default());
    let offer = &offered_protocols(format!("&P=sss,{}", server.parameters()).as_bytes())[0];
    let context = client_context("192.0.2.1:4711");
    let mut ours = client.begin(offer, &context).unwrap();
    let mut theirs = server.begin(&peer("192.0.2.1:4711"));
    let now = time(1_800_000_000);
    let asked = ours.step(None, now).unwrap();
    let ServerStep::Continue(challenge) = theirs.step(&asked, now) else { panic!("no login id") };
    let packet = ours.step(Some(&challenge), now).unwrap();
    let ServerStep::Done(entity) = theirs.step(&packet, now) else { panic!("refused") };
    assert_eq!((entity.name.as_deref(), entity.groups.as_deref()), (Some("erin"), Some("physics")));
    let mut damaged = challenge.clone();
    damaged[40] ^= 1;
    let mut other = client.begin(offer, &context).unwrap();
    other.step(None, now).unwrap();
    assert_eq!(other.step(Some(&damaged), now), Err(ClientAuthError::BadChallenge("challenge")));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_client_without_usable_keys_names_the_remedy() {
    let path = write_keytab("expired", "0 N:1 e:100 k:00");
    let offers = offered_protocols(b"&P=sss,0.+013:");
    let context = client_context("127.0.0.1:1");
    let of_path = |path: PathBuf| client(path, IdentitySource::Default, RecordedRng::default());
    let mut login = of_path(path.clone()).begin(&offers[0], &context).unwrap();
    let error = login.step(None, time(100 + 3 * 3600)).unwrap_err().to_string();
    assert!(error.contains("expired, the last one 3 h ago; get a new"), "{error}");
    let set_mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
    };
    set_mode(0o640);
    let error = of_path(path.clone()).begin(&offers[0], &context).err().unwrap().to_string();
    assert!(error.contains("0640") && error.contains("chmod 600"), "{error}");
    let link = path.with_extension("link");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = of_path(link.clone()).begin(&offers[0], &context).err().unwrap().to_string();
    assert!(error.contains("0640") && error.contains("chmod 600"), "{error}");
    set_mode(0o600);
    assert!(of_path(link.clone()).begin(&offers[0], &context).is_ok());
    let error = of_path(path.with_extension("none")).begin(&offers[0], &context).err().unwrap().to_string();
    assert!(error.contains("XrdSecSSSKT names ") && error.contains(", which does not exist"), "{error}");
    std::fs::remove_file(link).unwrap();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn packets_that_must_be_refused_are_refused() {
    let requirements = load("requirements.json");
    let vector = load("sss.json");
    let mut tested = 0;
    for case in list(&requirements["cases"]) {
        let (id, sent) = (text(case, "id"), text(case, "send_hex"));
        if text(case, "area") != SSS || sent.is_empty() {
            continue;
        }
        tested += 1;
        let server = server(keys(&vector), RecordedRng::default());
        let packet = unhex(sent).split_off(24);
        let now = time(case["clock"].as_u64().unwrap_or(1_795_187_117));
        let step = |server: &SssServer| server.begin(&peer(text(case, "peer"))).step(&packet, now);
        if !text(case, "after").is_empty() {
            assert!(matches!(step(&server), ServerStep::Done(_)), "{id}: first presentation");
        }
        match (step(&server), case["expect"]["error"].as_u64()) {
            (ServerStep::Refused(refusal), Some(3030)) => {
                let shown = refusal.text_for_peer();
                assert!(!shown.contains(refusal.reason()), "{id}: {shown}");
            }
            (ServerStep::Done(entity), None) => assert_accepted(id, &entity),
            (step, _) => panic!("{id}: {step:?}"),
        }
    }
    assert_eq!(tested, 26);
}

/// Checks the identity of packets that are accepted, but not with everything that they say.
fn assert_accepted(id: &str, entity: &Entity) {
    let name = match id {
        "S040" | "S041" | "S042" => "alice",
        "S043" => "bob",
        _ => entity.name.as_deref().unwrap(),
    };
    assert_eq!((entity.name.as_deref(), &*entity.protocol), (Some(name), SSS), "{id}");
    if name == "alice" {
        assert_eq!(entity.groups.as_deref(), Some("staff"), "{id}");
        assert!(entity.vorg.is_none() && entity.role.is_none() && entity.capabilities.is_none(), "{id}");
    }
    assert!(entity.attributes.is_empty() && entity.credentials.is_none(), "{id}");
    assert!(entity.endorsements.is_none() && entity.uid.is_none() && entity.gid.is_none(), "{id}");
}

#[test]
fn every_truncation_and_every_changed_byte_of_a_packet_is_refused() {
    let vector = load("sss.json");
    let connection = &vector["connections"][1];
    let packet = &payloads(connection, "kXR_auth")[0];
    let decoded = &connection["decoded"][0];
    let now = time(decoded["unix_time"].as_u64().unwrap());
    let server = server(keys(&vector), RecordedRng::default());
    let is_refused = |packet: &[u8]| {
        let step = server.begin(&peer(&claimed_address(decoded))).step(packet, now);
        matches!(step, ServerStep::Refused(_))
    };
    for length in 0..packet.len() {
        assert!(is_refused(&packet[..length]), "{length}");
    }
    // Bytes 4 and 5 of the header have no meaning.
    for at in (0..packet.len()).filter(|at| !(4..6).contains(at)) {
        let mut changed = packet.clone();
        changed[at] ^= 0x41;
        assert!(is_refused(&changed), "{at}");
    }
    assert!(!is_refused(packet));
}
