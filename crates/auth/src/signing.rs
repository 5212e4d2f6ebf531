//! Signed requests (`kXR_sigver`): which requests need a signature and what it covers.
//!
//! Source: security facts, section 1.9; xroot protocol 5.2.0, section 1.11.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wire::FixedLayout;
use wire::xroot::codes::{QueryType, RequestCode, SecurityLevel, SignRequirement};
use wire::xroot::flags::{OpenOptions, SecurityOptions, SigverCrypto, SigverFlags};
use wire::xroot::header::RequestHeader;
use wire::xroot::limits::REQUEST_HEADER_BYTES;
use wire::xroot::reply::SecurityRequirements;
use wire::xroot::request::{Request, Sigver};

/// A cipher with the session key of an authentication protocol.
pub trait SignatureCipher: Send + Sync {
    /// Encrypts a hash to a signature of at most 64 bytes.
    fn encrypt(&self, hash: &[u8; 32]) -> Vec<u8>;

    /// Decrypts a signature; `None` if it is not an encrypted hash.
    fn decrypt(&self, signature: &[u8]) -> Option<[u8; 32]>;
}

/// The requirements that a server sends with the reply to `kXR_protocol`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SigningRequirements {
    /// The level whose table applies; levels above the highest count as the highest.
    pub level: SecurityLevel,
    /// Options for all requests.
    pub options: SecurityOptions,
    /// Requirements that override the table.
    overrides: Vec<(RequestCode, SignRequirement)>,
}

impl SigningRequirements {
    /// Takes the requirements of a server.
    #[must_use]
    pub fn new(sent: &SecurityRequirements<'_>) -> Self {
        let overrides = sent.overrides().collect();
        Self { level: sent.seclvl, options: sent.secopt, overrides }
    }

    /// Creates the requirements of a level without overrides.
    #[must_use]
    pub const fn of_level(level: SecurityLevel, options: SecurityOptions) -> Self {
        Self { level, options, overrides: Vec::new() }
    }

    fn requirement(&self, code: RequestCode) -> SignRequirement {
        let overriding = self.overrides.iter().rev().find(|(of, _)| *of == code);
        overriding.map_or_else(|| level_requirement(self.level, code), |(_, requirement)| *requirement)
    }

    /// Reports whether all requests of a kind must be signed.
    #[must_use]
    pub fn signs_all(&self, code: RequestCode) -> bool {
        !matches!(self.requirement(code), SignRequirement::IGNORE | SignRequirement::LIKELY)
    }

    /// Reports whether this request must be signed.
    #[must_use]
    pub fn needs_signature(&self, header: &RequestHeader, payload: &[u8]) -> bool {
        match self.requirement(header.code) {
            SignRequirement::IGNORE => false,
            SignRequirement::LIKELY => is_likely(header, payload),
            _ => true,
        }
    }
}

/// The signatures of one connection of a client.
pub struct RequestSigner {
    requirements: SigningRequirements,
    cipher: Option<Arc<dyn SignatureCipher>>,
    /// Sequence number of the last signature.
    sequence: u64,
}

impl fmt::Debug for RequestSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestSigner({:?}, sequence {})", self.requirements, self.sequence)
    }
}

impl RequestSigner {
    /// Creates the signer of a connection. Returns `None` if nothing is to be signed: without a
    /// session key a server expects signatures only if it forces them.
    #[must_use]
    pub fn new(requirements: SigningRequirements, cipher: Option<Arc<dyn SignatureCipher>>) -> Option<Self> {
        let is_wanted = cipher.is_some() || requirements.options.contains(SecurityOptions::FORCE);
        let is_empty = requirements.level == SecurityLevel::NONE && requirements.overrides.is_empty();
        (is_wanted && !is_empty).then_some(Self { requirements, cipher, sequence: 0 })
    }

    /// Reports whether signatures of writes cover their data.
    #[must_use]
    pub fn covers_data(&self) -> bool {
        self.requirements.options.contains(SecurityOptions::DATA)
    }

    /// Returns the `kXR_sigver` that must be sent directly before a request, if it needs one.
    /// `request` is the encoded request; `payload` is file data behind it that is sent separately.
    pub fn sign(&mut self, request: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let (bytes, arguments) = request.split_first_chunk()?;
        let header = RequestHeader::from_bytes(bytes);
        if !self.requirements.needs_signature(&header, arguments) {
            return None;
        }
        self.sequence += 1;
        let is_data = matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE);
        let leaves_out = is_data && !self.covers_data();
        let (flags, [arguments, payload]) = if leaves_out {
            (SigverFlags::NODATA, [[].as_slice(); 2])
        } else {
            let covered = usize::try_from(header.dlen).unwrap_or(0);
            let arguments = arguments.get(..covered).unwrap_or(arguments);
            let rest = covered - arguments.len();
            (SigverFlags::NONE, [arguments, payload.get(..rest).unwrap_or(payload)])
        };
        let hash = hash_of(self.sequence, bytes, [arguments, payload]);
        let signature = self.cipher.as_ref().map_or_else(|| hash.to_vec(), |cipher| cipher.encrypt(&hash));
        let sigver = Sigver {
            expectrid: header.code,
            version: 0,
            flags,
            seqno: self.sequence,
            crypto: SigverCrypto::SHA256,
            signature: &signature,
        };
        let mut out = Vec::with_capacity(REQUEST_HEADER_BYTES + signature.len());
        Request::Sigver(sigver).encode(header.streamid, &mut out);
        Some(out)
    }
}

/// The hash of a signed request whose payload arrives in pieces.
#[derive(Clone)]
pub struct RequestHash(Sha256);

impl RequestHash {
    /// Begins the hash with the sequence number of the signature and the header as sent.
    #[must_use]
    pub fn new(sequence: u64, header: &[u8; REQUEST_HEADER_BYTES]) -> Self {
        let mut hash = Sha256::new();
        hash.update(sequence.to_be_bytes());
        hash.update(header);
        Self(hash)
    }

    /// Adds the next bytes of the payload.
    pub fn update(&mut self, payload: &[u8]) {
        self.0.update(payload);
    }

    /// Returns the hash after the last byte of the payload.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

impl fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestHash")
    }
}

/// Returns the hash of a request: its sequence number, its header as sent, and its payload unless
/// the signature leaves it out.
#[must_use]
pub fn request_hash(sequence: u64, header: &[u8; REQUEST_HEADER_BYTES], payload: &[u8]) -> [u8; 32] {
    hash_of(sequence, header, [payload, &[]])
}

fn hash_of(sequence: u64, header: &[u8; REQUEST_HEADER_BYTES], payload: [&[u8]; 2]) -> [u8; 32] {
    let mut hash = RequestHash::new(sequence, header);
    payload.into_iter().for_each(|part| hash.update(part));
    hash.finish()
}

/// Reports whether a request that is "likely" to need a signature needs one.
fn is_likely(header: &RequestHeader, payload: &[u8]) -> bool {
    match Request::decode(header, payload) {
        Ok(Request::Open(open)) => {
            let changes =
                OpenOptions::DELETE.with(OpenOptions::NEW).with(OpenOptions::APND).with(OpenOptions::UPDT);
            open.options.intersects(changes)
        }
        Ok(Request::Query(query)) => {
            matches!(query.infotype, QueryType::OPAQUE | QueryType::OPAQUF | QueryType::OPAQUG)
        }
        Ok(Request::Set(set)) => set.modifier != 0,
        // Every other request that is marked so, and one that cannot be decoded.
        _ => true,
    }
}

/// Returns the requirement from the table of security levels.
fn level_requirement(level: SecurityLevel, code: RequestCode) -> SignRequirement {
    use RequestCode as R;
    use SignRequirement as S;
    let columns = match code {
        R::BIND | R::CLOSE | R::ENDSESS | R::PGREAD | R::PGWRITE | R::WRITE => {
            [S::IGNORE, S::IGNORE, S::NEEDED, S::NEEDED]
        }
        R::CHMOD | R::CHKPOINT | R::FATTR | R::GPFILE | R::MV | R::RM | R::RMDIR | R::TRUNCATE => {
            [S::NEEDED; 4]
        }
        R::DIRLIST | R::LOCATE | R::PREPARE | R::READ | R::READV | R::STAT | R::STATX | R::SYNC => {
            [S::IGNORE, S::IGNORE, S::IGNORE, S::NEEDED]
        }
        R::MKDIR => [S::IGNORE, S::NEEDED, S::NEEDED, S::NEEDED],
        R::OPEN => [S::LIKELY, S::NEEDED, S::NEEDED, S::NEEDED],
        R::QUERY => [S::IGNORE, S::IGNORE, S::LIKELY, S::NEEDED],
        R::SET => [S::LIKELY, S::LIKELY, S::NEEDED, S::NEEDED],
        _ => [S::IGNORE; 4],
    };
    let [compatible, standard, intense, pedantic] = columns;
    match level {
        SecurityLevel::NONE => S::IGNORE,
        SecurityLevel::COMPATIBLE => compatible,
        SecurityLevel::STANDARD => standard,
        SecurityLevel::INTENSE => intense,
        _ => pedantic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::xroot::flags::{OpenTemplateOptions, StatOptions, StatWants};
    use wire::xroot::request::{Open, Ping, Stat, Write};
    use wire::xroot::{FileHandle, StreamId};

    fn needs(requirements: &SigningRequirements, request: &Request<'_>) -> bool {
        let mut bytes = Vec::new();
        request.encode(StreamId::default(), &mut bytes);
        let (header, payload) = bytes.split_first_chunk().unwrap();
        requirements.needs_signature(&RequestHeader::from_bytes(header), payload)
    }

    fn stat() -> Request<'static> {
        let (options, wants) = (StatOptions(0), StatWants(0));
        Request::Stat(Stat { options, wants, fhandle: FileHandle([0; 4]), path: b"/a" })
    }

    fn open(options: OpenOptions) -> Request<'static> {
        let optiont = OpenTemplateOptions(0);
        Request::Open(Open { mode: 0, options, optiont, fhtemplt: FileHandle([0; 4]), target: b"/a" })
    }

    #[test]
    fn an_open_is_likely_when_it_changes_something() {
        let of = |level| SigningRequirements::of_level(level, SecurityOptions(0));
        let compatible = of(SecurityLevel::COMPATIBLE);
        assert!(!needs(&compatible, &open(OpenOptions::READ)));
        assert!(needs(&compatible, &open(OpenOptions::NEW)) && needs(&compatible, &open(OpenOptions::UPDT)));
        assert!(needs(&of(SecurityLevel::STANDARD), &open(OpenOptions::READ)));
        assert!(of(SecurityLevel::STANDARD).signs_all(RequestCode::OPEN));
        assert!(!compatible.signs_all(RequestCode::OPEN) && !compatible.signs_all(RequestCode::STAT));
        let stat = stat();
        assert!(!needs(&of(SecurityLevel::INTENSE), &stat) && needs(&of(SecurityLevel::PEDANTIC), &stat));
        assert!(needs(&of(SecurityLevel(9)), &stat), "higher levels count as the highest");
        assert!(!needs(&of(SecurityLevel::PEDANTIC), &Request::Ping(Ping)));
        assert!(!needs(&of(SecurityLevel::NONE), &open(OpenOptions::NEW)));
    }

    fn write(data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let dlen = i32::try_from(data.len()).unwrap();
        let write = Write { fhandle: FileHandle([1; 4]), offset: 0, pathid: 0, dlen };
        Request::Write(write).encode(StreamId([3, 4]), &mut bytes);
        bytes
    }

    /// Returns flags, sequence number and signature.
    fn decode(sigver: &[u8]) -> (SigverFlags, u64, Vec<u8>) {
        let (header, payload) = sigver.split_first_chunk().unwrap();
        let header = RequestHeader::from_bytes(header);
        assert_eq!((header.code, header.streamid), (RequestCode::SIGVER, StreamId([3, 4])));
        let Ok(Request::Sigver(m)) = Request::decode(&header, payload) else { panic!("no signature") };
        (m.flags, m.seqno, m.signature.to_vec())
    }

    #[test]
    fn file_data_is_covered_only_on_request() {
        let request = write(b"data");
        let header = request.first_chunk().unwrap();
        let level = SecurityLevel::INTENSE;
        let of = |options| SigningRequirements::of_level(level, options);
        let mut signer = RequestSigner::new(of(SecurityOptions::FORCE), None).unwrap();
        let (flags, sequence, signature) = decode(&signer.sign(&request, b"data").unwrap());
        assert_eq!((flags, sequence), (SigverFlags::NODATA, 1));
        assert_eq!(signature, request_hash(1, header, b""));
        assert_eq!(decode(&signer.sign(&request, b"data").unwrap()).1, 2);
        let options = SecurityOptions::FORCE.with(SecurityOptions::DATA);
        let mut signer = RequestSigner::new(of(options), None).unwrap();
        let (flags, _, signature) = decode(&signer.sign(&request, b"data").unwrap());
        assert_eq!((flags, signature), (SigverFlags::NONE, request_hash(1, header, b"data").to_vec()));
    }

    #[test]
    fn without_a_key_nothing_is_signed_unless_forced() {
        let of = |options| SigningRequirements::of_level(SecurityLevel::PEDANTIC, options);
        assert!(RequestSigner::new(of(SecurityOptions(0)), None).is_none());
        assert!(RequestSigner::new(of(SecurityOptions::FORCE), None).is_some());
        let none = SigningRequirements::of_level(SecurityLevel::NONE, SecurityOptions::FORCE);
        assert!(RequestSigner::new(none, None).is_none());
    }

    #[test]
    fn overrides_replace_the_table() {
        let pairs = [[17, 2], [10, 0]];
        let sent = SecurityRequirements {
            secver: 0,
            secopt: SecurityOptions(0),
            seclvl: SecurityLevel::STANDARD,
            overrides: &pairs,
        };
        let requirements = SigningRequirements::new(&sent);
        assert!(needs(&requirements, &stat()));
        assert!(!needs(&requirements, &open(OpenOptions::NEW)));
    }
}
