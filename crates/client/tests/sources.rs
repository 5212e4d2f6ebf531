//! Copies from several servers of which some have wrong bytes: these bytes are found and replaced.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use client::copy::{Against, ChecksumWish, Copier, CopyDone, CopyError, CopyJob, CopyOptions, Place, Watch};
use client::{Client, Url};
use digest::{Algorithm, RunningChecksum};
use support::{Act, Asked, Fake, PLAIN, client, ok, opened, send, silence};
use tokio::net::TcpListener;
use wire::xroot::reply;
use wire::xroot::{ErrorCode, RequestCode};

const BLOCK: usize = 64 * 1024;
const PAGE: usize = 4096;
const BLOCKS: usize = 32;

fn content() -> Vec<u8> {
    (0..BLOCKS * BLOCK + 7).map(|at| (at / 251 + at % 7) as u8).collect()
}

/// Returns the content with one wrong byte in each block, in pages that samples do not contain.
fn subtly_wrong() -> Vec<u8> {
    let mut content = content();
    content.chunks_mut(BLOCK).filter(|block| block.len() == BLOCK).for_each(|block| block[5 * PAGE + 1] ^= 1);
    content
}

/// The checksum that a server reports.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    /// The checksum of the right content.
    Right,
    /// The checksum of its own content.
    Own,
    /// An error.
    Nothing,
}

fn adler32(data: &[u8]) -> String {
    RunningChecksum::of(Algorithm::Adler32, data).hex()
}

async fn server(content: Vec<u8>, says: Says) -> Fake {
    let content = Arc::new(content);
    let told = match says {
        Says::Right => Some(adler32(&self::content())),
        Says::Own => Some(adler32(&content)),
        Says::Nothing => None,
    };
    Fake::start(PLAIN, move |asked: &Asked| -> Act {
        match asked.code() {
            RequestCode::OPEN => opened(asked, 1, content.len() as u64),
            RequestCode::READ => {
                let (_, place) = asked.header.body.split_at(4);
                let (offset, rlen) = place.split_at(8);
                let offset = i64::from_be_bytes(offset.try_into().unwrap()) as usize;
                let rlen = i32::from_be_bytes(rlen[..4].try_into().unwrap()) as usize;
                ok(asked, &content[offset.min(content.len())..(offset + rlen).min(content.len())])
            }
            RequestCode::QUERY => match &told {
                Some(told) => ok(asked, format!("adler32 {told}\0").as_bytes()),
                None => send(|out| reply::error(out, asked.header.streamid, ErrorCode::UNSUPPORTED, "no")),
            },
            RequestCode::CLOSE => ok(asked, b""),
            _ => silence(),
        }
    })
    .await
}

struct Scene {
    servers: Vec<Fake>,
    target: PathBuf,
    client: Client,
}

impl Scene {
    async fn new(name: &str, contents: &[(Vec<u8>, Says)]) -> Self {
        let mut servers = Vec::new();
        for (content, says) in contents {
            servers.push(server(content.clone(), *says).await);
        }
        let target = std::env::temp_dir().join(format!("scalla-sources-{name}-{}", std::process::id()));
        Self { servers, target, client: client(&[]) }
    }

    fn url(&self) -> Url {
        let hosts: Vec<String> = self.servers.iter().map(|server| server.address.to_string()).collect();
        Url::parse(&format!("root://{}//file", hosts.join(","))).unwrap()
    }

    async fn copy(&self, against: Option<Against>) -> Result<CopyDone, CopyError> {
        let mut options = CopyOptions::of(self.client.settings());
        options.chunk_bytes = BLOCK;
        options.checksums = against
            .map(|against| ChecksumWish { algorithm: Some(Algorithm::Adler32), against })
            .into_iter()
            .collect();
        let job = CopyJob {
            source: Place::Remote(self.url()),
            target: Place::Local(self.target.clone()),
            size: None,
        };
        Copier::new(&self.client).copy(&job, &options, &Watch::default()).await
    }

    /// Checks that the copy is right and that only this server was given up as untrusted.
    #[track_caller]
    fn is_right(&self, done: &CopyDone, liar: usize, why: &str) {
        assert!(std::fs::read(&self.target).unwrap() == content());
        for (number, server) in self.servers.iter().enumerate() {
            let share = done.shares.iter().find(|share| share.source == server.address.to_string()).unwrap();
            let failed = share.failed.as_deref();
            assert_eq!(
                failed.is_some_and(|failed| failed.contains(why)),
                number == liar,
                "{number}: {failed:?}"
            );
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        std::fs::remove_file(&self.target).ok();
    }
}

#[tokio::test]
async fn another_file_of_the_same_size_is_rejected_before_the_transfer() {
    let other = vec![7; content().len()];
    for liar in 0..3 {
        let mut contents = vec![(content(), Says::Nothing), (content(), Says::Nothing)];
        contents.insert(liar, (other.clone(), Says::Nothing));
        let scene = Scene::new("other", &contents).await;
        let done = scene.copy(None).await.unwrap();
        scene.is_right(&done, liar, "is not that of the other");
        assert_eq!(done.shares.iter().map(|share| share.bytes).sum::<u64>(), done.size);
        assert!(
            done.shares.iter().all(|share| (share.bytes == 0) == share.failed.is_some()),
            "{:?}",
            done.shares
        );
    }
}

#[tokio::test]
async fn of_two_different_sources_only_the_first_is_used() {
    let scene =
        Scene::new("two", &[(content(), Says::Nothing), (vec![1; content().len()], Says::Nothing)]).await;
    let done = scene.copy(None).await.unwrap();
    scene.is_right(&done, 1, "is not that of the other");
}

#[tokio::test]
async fn bytes_of_a_source_with_a_wrong_checksum_are_replaced() {
    let contents = [
        (content(), Says::Own),
        (subtly_wrong(), Says::Own),
        (content(), Says::Nothing),
        (content(), Says::Own),
    ];
    let scene = Scene::new("sum", &contents).await;
    let done = scene.copy(Some(Against::EachOther)).await.unwrap();
    scene.is_right(&done, 1, "its adler32 is");
}

#[tokio::test]
async fn damage_behind_a_valid_checksum_is_found_by_comparison() {
    for liar in 0..3 {
        let mut contents = vec![(content(), Says::Right), (content(), Says::Right)];
        contents.insert(liar, (subtly_wrong(), Says::Right));
        let scene = Scene::new("rot", &contents).await;
        let done = scene.copy(Some(Against::EachOther)).await.unwrap();
        scene.is_right(&done, liar, "is not what the file holds");
    }
}

#[tokio::test]
async fn the_checksum_decides_between_two_sources() {
    for liar in 0..2 {
        let mut contents = vec![(content(), Says::Right)];
        contents.insert(liar, (subtly_wrong(), Says::Right));
        let scene = Scene::new("pair", &contents).await;
        let done = scene.copy(Some(Against::EachOther)).await.unwrap();
        scene.is_right(&done, liar, "is not what the file holds");
    }
}

#[tokio::test]
async fn a_known_value_overrides_the_majority() {
    for says in [Says::Own, Says::Nothing] {
        let contents = [(subtly_wrong(), says), (content(), says), (subtly_wrong(), says)];
        let scene = Scene::new("value", &contents).await;
        let copied = scene.copy(Some(Against::Value(adler32(&content())))).await;
        if says == Says::Own {
            assert!(copied.is_ok() && std::fs::read(&scene.target).unwrap() == content(), "{copied:?}");
        } else {
            // Two sources agree on wrong bytes, so the copy fails.
            assert!(matches!(copied, Err(CopyError::Checksum { .. })), "{copied:?}");
            assert!(!scene.target.exists());
        }
    }
}

#[tokio::test]
async fn a_value_that_no_source_has_fails_without_untrusted_sources() {
    let scene = Scene::new("none", &[(content(), Says::Right), (content(), Says::Right)]).await;
    let error = scene.copy(Some(Against::Value("12345678".to_owned()))).await.unwrap_err();
    assert!(matches!(error, CopyError::Checksum { .. }), "{error}");
    assert!(!scene.target.exists());
    let reads = scene.servers.iter().map(|server| server.count(RequestCode::READ)).sum::<usize>();
    // Samples and the file itself are read, but not all blocks are compared.
    assert!(reads < 32 + BLOCKS * 3 / 2, "{reads}");
}

/// Checks that an unreachable manager is retried, as for a copy from one server: the only node that
/// knows the location may be restarting.
#[tokio::test]
async fn an_unreachable_manager_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = std::env::temp_dir().join(format!("scalla-sources-back-{}", std::process::id()));
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    options.sources = 3;
    let job = CopyJob {
        source: Place::Remote(Url::parse(&format!("root://{address}//file")).unwrap()),
        target: Place::Local(target.clone()),
        size: None,
    };
    let copying =
        tokio::spawn(async move { Copier::new(&client).copy(&job, &options, &Watch::default()).await });
    // It ends with the first connection.
    drop(listener.accept().await.unwrap());
    let _back = Fake::listening(listener, PLAIN, move |asked: &Asked| match asked.code() {
        RequestCode::LOCATE => ok(asked, format!("Sr{address}\0").as_bytes()),
        RequestCode::OPEN => opened(asked, 1, 7),
        RequestCode::READ => ok(asked, b"content"),
        _ => ok(asked, b""),
    });
    copying.await.unwrap().unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"content");
    std::fs::remove_file(&target).unwrap();
}
