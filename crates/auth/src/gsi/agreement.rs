//! The key agreement: Diffie-Hellman in a group of the server, whose public values travel as text.
//!
//! ```text
//! text = PEM "DH PARAMETERS" (PKCS #3)  "---BPUB---"  hexadecimal public value  "---EPUB---"
//! ```
//!
//! Source: security facts, section 2.6.4.

use super::fixed_base::FixedBase;
use super::modular::{Modulus, compare, without_leading_zeros};
use super::pem;
use crate::secret::Secret;
use base::Rng;
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Decode, Encode, Reader, SliceReader};
use zeroize::Zeroizing;

/// The group that our servers send: `ffdhe3072` of RFC 7919. OpenSSL knows it. It tests the prime of any other
/// group in each login, which takes a client more than two seconds of processor time.
const NAMED_GROUP: &str = include_str!("dh_ffdhe3072.pem");

/// The group that servers of XRootD send: a safe prime of 3072 bits with the generator 5.
const FIXED_GROUP: &str = include_str!("dh_xrootd.pem");

/// Minimum size of the prime of a server's group in bits.
pub(crate) const PRIME_BITS_MIN: usize = 2048;

/// Minimum size for a client that accepts weak groups.
pub(crate) const WEAK_PRIME_BITS_MIN: usize = 512;

/// Maximum size of the prime of a group that is not known in bits. The test of a larger one would
/// take too long.
const PRIME_BITS_MAX: usize = 4096;

/// Size of private exponents in bytes: in a group of a safe prime, twice the strength of its discrete
/// logarithm (RFC 7919: 125 bits for a prime of 3072 bits). The time of a login grows with it.
const EXPONENT_BYTES: usize = 32;

/// Number of rounds of each test of a prime. A composite passes one round with a probability of at
/// most 1/4, whoever chose it, because the bases are random.
const PRIME_ROUNDS: usize = 40;

/// Number of groups that are remembered as safe.
const SAFE_GROUPS_MAX: usize = 8;

const PUBLIC_BEGIN: &str = "---BPUB---";
const PUBLIC_END: &str = "---EPUB---";

/// A group of a key agreement.
pub(crate) struct DhGroup {
    /// Without zeros in front.
    prime: Vec<u8>,
    generator: Vec<u8>,
    modulus: Modulus,
    pem: String,
    /// Powers of the generator, in the process of a server.
    generator_powers: OnceLock<Option<FixedBase>>,
}

impl DhGroup {
    /// Returns the group that our servers send.
    pub(crate) fn named() -> Option<Arc<Self>> {
        static NAMED: LazyLock<Option<Arc<DhGroup>>> =
            LazyLock::new(|| DhGroup::decode(NAMED_GROUP).map(Arc::new));
        NAMED.clone()
    }

    /// Returns the group that servers of XRootD send. Ours send it to old clients, whose library may refuse
    /// the generator of the other one.
    pub(crate) fn fixed() -> Option<Arc<Self>> {
        static FIXED: LazyLock<Option<Arc<DhGroup>>> =
            LazyLock::new(|| DhGroup::decode(FIXED_GROUP).map(Arc::new));
        FIXED.clone()
    }

    /// Returns the groups that are known to be safe.
    fn known() -> impl Iterator<Item = Arc<Self>> {
        [Self::named(), Self::fixed()].into_iter().flatten()
    }

    /// Decodes PEM text.
    fn decode(text: &str) -> Option<Self> {
        let der = pem::single(text, pem::DH_PARAMETERS)?;
        let mut reader = SliceReader::new(&der).ok()?;
        let numbers = reader.sequence(|inner| {
            let prime = UintRef::decode(inner)?.as_bytes().to_vec();
            let generator = UintRef::decode(inner)?.as_bytes().to_vec();
            if !inner.is_finished() {
                UintRef::decode(inner)?;
            }
            x509_cert::der::Result::Ok((prime, generator))
        });
        let (prime, generator) = numbers.ok().filter(|_| reader.is_finished())?;
        let modulus = Modulus::new(&prime)?;
        Some(Self { prime, generator, modulus, pem: text.to_owned(), generator_powers: OnceLock::new() })
    }

    /// Computes what makes key pairs of this group cheaper. It takes longer than a key pair, and 400 KiB of
    /// memory for a prime of 3072 bits, so it is for servers only.
    pub(super) fn prepare_key_pairs(&self) {
        self.generator_powers.get_or_init(|| FixedBase::new(&self.modulus, &self.generator, EXPONENT_BYTES));
    }

    /// Returns the generator to the power of a private exponent.
    fn public_value(&self, exponent: &Secret) -> Option<Vec<u8>> {
        let exponent = exponent.expose();
        let prepared = self.generator_powers.get().and_then(Option::as_ref);
        prepared
            .and_then(|powers| powers.power(&self.modulus, exponent))
            .or_else(|| self.modulus.power(&self.generator, exponent))
    }

    /// Returns the beginning of the text of all key agreements of this group.
    pub(super) fn text_prefix(&self) -> String {
        format!("{}{PUBLIC_BEGIN}", self.pem)
    }

    /// Creates the group of a prime and a generator; `None` if they do not form one.
    pub(crate) fn of_numbers(prime: &[u8], generator: &[u8]) -> Option<Arc<Self>> {
        let numbers = [UintRef::new(prime).ok()?, UintRef::new(generator).ok()?];
        Self::decode(&pem::encode(pem::DH_PARAMETERS, &numbers.to_vec().to_der().ok()?)).map(Arc::new)
    }

    /// Returns the group if its prime is a safe one with at least this number of bits.
    pub(crate) fn safe(
        self: Arc<Self>,
        bits_min: usize,
        rng: &mut dyn Rng,
    ) -> Result<Arc<Self>, AgreementError> {
        match Self::known().find(|known| known.is_equal(&self)) {
            Some(known) => Ok(known),
            None if self.is_safe(bits_min, rng) => Ok(self),
            None => Err(AgreementError::WeakGroup(self.bits())),
        }
    }

    fn is_equal(&self, other: &Self) -> bool {
        compare(&self.prime, &other.prime) == Ordering::Equal
            && compare(&self.generator, &other.generator) == Ordering::Equal
    }

    /// Returns the size of the prime in bits.
    fn bits(&self) -> usize {
        let unused = self.prime.first().map_or(0, |first| first.leading_zeros() as usize);
        self.prime.len() * 8 - unused
    }

    /// Reports whether a public value has an order that does not reveal the key: 2 to p - 2.
    fn has_valid(&self, public: &[u8]) -> bool {
        let mut largest = self.prime.clone();
        if let Some(last) = largest.last_mut() {
            *last &= 0xfe;
        }
        compare(public, &[1]) == Ordering::Greater && compare(public, &largest) == Ordering::Less
    }

    /// Reports whether a group of a server can be used: p and (p - 1) / 2 are prime and large. Groups
    /// that passed are remembered.
    fn is_safe(&self, bits_min: usize, rng: &mut dyn Rng) -> bool {
        static SAFE: Mutex<VecDeque<[u8; 32]>> = Mutex::new(VecDeque::new());
        let bits = self.bits();
        if bits < bits_min || bits > PRIME_BITS_MAX || !self.has_valid(&self.generator) {
            return false;
        }
        let hash: [u8; 32] = Sha256::digest(&self.prime).into();
        let lock = || SAFE.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().contains(&hash) {
            return true;
        }
        let half = halved(&self.prime);
        if !is_prime(&self.prime, rng) || !is_prime(&half, rng) {
            return false;
        }
        let mut safe = lock();
        safe.push_back(hash);
        if safe.len() > SAFE_GROUPS_MAX {
            safe.pop_front();
        }
        true
    }
}

/// Returns half of a number, rounded down.
fn halved(number: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let half = number.iter().map(|byte| {
        let shifted = (byte >> 1) | carry;
        carry = byte << 7;
        shifted
    });
    half.collect()
}

/// Tests a number by the test of Miller and Rabin with random bases.
fn is_prime(number: &[u8], rng: &mut dyn Rng) -> bool {
    let number = without_leading_zeros(number);
    let Some(modulus) = Modulus::new(number) else { return false };
    // number - 1 = odd * 2^twos
    let mut less_one = number.to_vec();
    if let Some(last) = less_one.last_mut() {
        *last &= 0xfe;
    }
    let (mut odd, mut twos) = (less_one.clone(), 0);
    while odd.last().is_some_and(|last| last & 1 == 0) && twos < number.len() * 8 {
        odd = halved(&odd);
        twos += 1;
    }
    (0..PRIME_ROUNDS).all(|_| {
        let mut base = vec![0; number.len()];
        // Below the number, because its first byte is 0.
        if let Some(rest) = base.get_mut(1..) {
            rng.fill(rest);
        }
        let Some(mut power) = modulus.power(&base, &odd) else { return false };
        if compare(&power, &[1]) == Ordering::Equal {
            return true;
        }
        for _ in 0..twos {
            if compare(&power, &less_one) == Ordering::Equal {
                return true;
            }
            let Some(square) = modulus.power(&power, &[2]) else { return false };
            power = square;
        }
        false
    })
}

/// The reason why the text of a peer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AgreementError {
    #[error("the text of its key agreement is malformed")]
    Malformed,
    #[error("its key agreement uses another group than the one of the server")]
    OtherGroup,
    #[error("the group of its key agreement is too weak: {0} bits, or not of a safe prime")]
    WeakGroup(usize),
    #[error("the public value of its key agreement is out of range")]
    PublicValue,
}

/// Group and public value of a peer.
pub(crate) struct PeerAgreement {
    group: Arc<DhGroup>,
    public: Vec<u8>,
}

impl PeerAgreement {
    /// Decodes the text of a peer.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, AgreementError> {
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        let text = std::str::from_utf8(text).map_err(|_| AgreementError::Malformed)?;
        let (parameters, rest) = text.split_once(PUBLIC_BEGIN).ok_or(AgreementError::Malformed)?;
        let digits = rest.strip_suffix(PUBLIC_END).ok_or(AgreementError::Malformed)?;
        let public = from_hex(digits).ok_or(AgreementError::Malformed)?;
        // The usual groups are not prepared again for each peer.
        let known = DhGroup::known().find(|known| known.pem == parameters);
        let group = known.or_else(|| DhGroup::decode(parameters).map(Arc::new));
        let group = group.ok_or(AgreementError::Malformed)?;
        if !group.has_valid(&public) {
            return Err(AgreementError::PublicValue);
        }
        Ok(Self { group, public })
    }

    /// Returns the group, for the key pair of a client, if its prime is a safe one with at least this
    /// number of bits.
    pub(crate) fn safe_group(
        &self,
        bits_min: usize,
        rng: &mut dyn Rng,
    ) -> Result<Arc<DhGroup>, AgreementError> {
        self.group.clone().safe(bits_min, rng)
    }
}

/// Reports whether bytes are the text of a key agreement, whatever its group.
#[must_use]
pub fn is_agreement_text(text: &[u8]) -> bool {
    PeerAgreement::decode(text).is_ok()
}

/// Returns the number of hexadecimal digits, which may be odd in number.
pub(crate) fn number_of_hex(digits: &str) -> Option<Vec<u8>> {
    if digits.len().is_multiple_of(2) { from_hex(digits) } else { from_hex(&format!("0{digits}")) }
}

fn to_hex(number: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for byte in without_leading_zeros(number) {
        let _ = write!(text, "{byte:02X}");
    }
    text
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(high)? << 4 | value(low)?),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(pair).collect()
}

/// The key pair of one exchange.
pub(crate) struct KeyAgreement {
    group: Arc<DhGroup>,
    exponent: Secret,
    public: Vec<u8>,
}

impl KeyAgreement {
    /// Makes a key pair.
    pub(crate) fn generate(group: Arc<DhGroup>, rng: &mut dyn Rng) -> Option<Self> {
        Self::with_exponent(group, Self::random_exponent(rng))
    }

    /// Returns a private exponent.
    pub(crate) fn random_exponent(rng: &mut dyn Rng) -> Secret {
        let mut exponent = vec![0; EXPONENT_BYTES];
        rng.fill(&mut exponent);
        Secret::new(exponent)
    }

    pub(crate) fn with_exponent(group: Arc<DhGroup>, exponent: Secret) -> Option<Self> {
        let public = group.public_value(&exponent)?;
        Some(Self { group, exponent, public })
    }

    /// Returns the text for the peer.
    pub(crate) fn text(&self) -> String {
        format!("{}{}{PUBLIC_END}", self.group.text_prefix(), to_hex(&self.public))
    }

    /// Returns prime, generator, public value and private exponent as hexadecimal text.
    pub(crate) fn hex_numbers(&self) -> [Zeroizing<String>; 4] {
        let numbers = [&self.group.prime, &self.group.generator, &self.public];
        let [prime, generator, public] = numbers.map(|number| Zeroizing::new(to_hex(number)));
        [prime, generator, public, Zeroizing::new(to_hex(self.exponent.expose()))]
    }

    /// Returns the common secret, with as many bytes as the prime.
    pub(crate) fn agree(&self, peer: &PeerAgreement) -> Result<Secret, AgreementError> {
        if !self.group.is_equal(&peer.group) {
            return Err(AgreementError::OtherGroup);
        }
        let secret = self.group.modulus.power(without_leading_zeros(&peer.public), self.exponent.expose());
        secret.map(Secret::new).ok_or(AgreementError::PublicValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;
    use crate::gsi::vectors::{bytes, list, load, text};

    fn fixed() -> Arc<DhGroup> {
        DhGroup::fixed().unwrap()
    }

    fn peer(prime: &str, public: &str) -> Result<PeerAgreement, AgreementError> {
        PeerAgreement::decode(format!("{prime}---BPUB---{public}---EPUB---").as_bytes())
    }

    fn hex(number: &[u8]) -> String {
        number.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    #[test]
    fn the_recorded_agreements_have_their_secrets() {
        let vector = load("gsi.json");
        assert_eq!(text(&vector["dh"], "params_pem"), FIXED_GROUP);
        let mut checked = 0;
        for connection in list(&vector["connections"]) {
            let secrets = &connection["secrets"];
            let number = |key: &str| {
                let digits = text(secrets, key).trim_start_matches("0x");
                bytes(&format!("{digits:0>768}"))
            };
            for (own, other) in [("client", "server"), ("server", "client")] {
                if secrets[format!("{own}_dh_priv")].is_null() {
                    continue;
                }
                let exponent = Secret::new(number(&format!("{own}_dh_priv")));
                let own_pair = KeyAgreement::with_exponent(fixed(), exponent).unwrap();
                assert_eq!(own_pair.public, number(&format!("{own}_dh_pub")));
                let public = hex(&number(&format!("{other}_dh_pub")));
                let agreed = own_pair.agree(&peer(FIXED_GROUP, &public).unwrap()).unwrap();
                assert!(agreed.is_equal(&bytes(text(secrets, "shared_secret"))));
                checked += 1;
            }
        }
        assert_eq!(checked, 4);
    }

    #[test]
    fn a_prepared_group_has_the_same_public_values() {
        let prepared = DhGroup::decode(FIXED_GROUP).map(Arc::new).unwrap();
        prepared.prepare_key_pairs();
        let plain = DhGroup::decode(FIXED_GROUP).map(Arc::new).unwrap();
        let random = KeyAgreement::random_exponent(&mut SystemRng);
        for exponent in [random, Secret::new(vec![0xff; EXPONENT_BYTES]), Secret::new(vec![7; 48])] {
            let [one, other] = [&prepared, &plain]
                .map(|group| KeyAgreement::with_exponent(group.clone(), exponent.clone()).unwrap());
            assert_eq!(one.text(), other.text());
            assert!(one.text().starts_with(&prepared.text_prefix()));
        }
    }

    #[test]
    fn both_sides_have_the_same_secret() {
        for group in DhGroup::known() {
            let one = KeyAgreement::generate(group.clone(), &mut SystemRng).unwrap();
            let other = KeyAgreement::generate(group, &mut SystemRng).unwrap();
            let decoded =
                |pair: &KeyAgreement| PeerAgreement::decode(format!("{}\0", pair.text()).as_bytes());
            let secret = one.agree(&decoded(&other).unwrap()).unwrap();
            assert!(secret.is_equal(other.agree(&decoded(&one).unwrap()).unwrap().expose()));
            assert_eq!(secret.expose().len(), 384);
        }
    }

    #[test]
    fn the_known_groups_are_safe() {
        let known: Vec<_> = DhGroup::known().collect();
        assert_eq!(known.len(), 2);
        for group in &known {
            assert!(group.is_safe(PRIME_BITS_MIN, &mut SystemRng));
        }
        let [named, fixed] = known.as_slice() else { unreachable!() };
        // The form of RFC 7919: ones at both ends, and the generator 2.
        let prime = hex(&named.prime);
        assert!(prime.starts_with(&"F".repeat(16)) && prime.ends_with(&"F".repeat(16)));
        assert_eq!((named.bits(), named.generator.as_slice()), (3072, &[2][..]));
        let [one, other] = [named, fixed].map(|group| KeyAgreement::generate(group.clone(), &mut SystemRng));
        let text = other.unwrap().text();
        let peer = PeerAgreement::decode(text.as_bytes()).unwrap();
        assert_eq!(one.unwrap().agree(&peer).map(drop), Err(AgreementError::OtherGroup));
    }

    /// S078, S088.
    #[test]
    fn weak_values_and_groups_are_refused() {
        let prime = fixed().prime.clone();
        let mut less_one = prime.clone();
        *less_one.last_mut().unwrap() -= 1;
        let mut less_two = less_one.clone();
        *less_two.last_mut().unwrap() -= 1;
        for (public, is_valid) in [
            (hex(&[0]), false),
            (hex(&[1]), false),
            (hex(&[2]), true),
            (hex(&less_two), true),
            (hex(&less_one), false),
            (hex(&prime), false),
            (format!("01{}", hex(&prime)), false),
            ("00002".to_owned(), false),
            ("0G".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(peer(FIXED_GROUP, &public).is_ok(), is_valid, "{public}");
        }
        let unfinished = format!("{FIXED_GROUP}---BPUB---02");
        for malformed in [FIXED_GROUP, &unfinished, "---BPUB---02---EPUB---"] {
            assert!(PeerAgreement::decode(malformed.as_bytes()).is_err());
        }
        let group = |prime: &[u8]| {
            let numbers = [UintRef::new(prime).unwrap(), UintRef::new(&[5]).unwrap()];
            pem::encode(pem::DH_PARAMETERS, &numbers.to_vec().to_der().unwrap())
        };
        assert_eq!(group(&prime), FIXED_GROUP);
        let server = KeyAgreement::generate(fixed(), &mut SystemRng).unwrap();
        let mut composite = prime.clone();
        composite[100] ^= 1;
        let short = &prime[prime.len() - 128..];
        for other in [&composite[..], short] {
            let other = peer(&group(other), "02").unwrap();
            let bits = other.group.bits();
            assert_eq!(server.agree(&other).map(drop), Err(AgreementError::OtherGroup));
            assert_eq!(
                other.safe_group(PRIME_BITS_MIN, &mut SystemRng).map(drop),
                Err(AgreementError::WeakGroup(bits))
            );
        }
        // The first byte has one bit only.
        let (mut less, mut least) = (vec![0xff; 256], vec![0xff; 256]);
        (less[0], least[0]) = (1, 0x80);
        let bits = |prime: &[u8]| peer(&group(prime), "02").unwrap().group.bits();
        assert_eq!((bits(&less), bits(&least), bits(&prime)), (2041, 2048, 3072));
        let large = peer(&group(&[0xff; 513]), "02").unwrap();
        assert!(large.safe_group(PRIME_BITS_MIN, &mut SystemRng).is_err());
        assert!(peer(FIXED_GROUP, "02").unwrap().safe_group(PRIME_BITS_MIN, &mut SystemRng).is_ok());
    }

    #[test]
    fn primes_are_recognized() {
        let of = |number: u32| is_prime(&number.to_be_bytes(), &mut SystemRng);
        // The last ones are a Mersenne prime, and composites that pass the test of Fermat.
        for (number, expected) in [
            (65_537, true),
            (65_539, true),
            (65_541, false),
            (0x7fff_ffff, true),
            (62_745, false),
            (1_050_985, false),
        ] {
            assert_eq!(of(number), expected, "{number}");
        }
        assert_eq!(halved(&[3, 1]), [1, 0x80]);
    }
}
