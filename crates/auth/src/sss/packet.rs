//! The packet of `sss`: a clear header and an encrypted list of items.
//!
//! | bytes    | field       | meaning                                                           |
//! |----------|-------------|-------------------------------------------------------------------|
//! | 0..4     | id          | `sss`, NUL                                                        |
//! | 4..6     |             | 0                                                                 |
//! | 6        | name size   | 0, or the length of the key name with 1 to 8 NULs, a multiple of 8 |
//! | 7        | cipher      | `0`: Blowfish                                                     |
//! | 8..16    | key id      | i64                                                               |
//! | 16..     | key name    |                                                                   |
//! |          | *encrypted* |                                                                   |
//! | 0..32    | random      |                                                                   |
//! | 32..36   | time        | seconds since [`TIME_BASE`]                                       |
//! | 36..39   |             | 0                                                                 |
//! | 39       | options     | 0, or 1 to ask for the login id                                   |
//! | 40..     | items       | type u8, length u16, data                                         |
//! | last 4   | checksum    | CRC-32 of everything decrypted before it                          |
//!
//! Source: security facts, section 2.3.3. Recorded: `sss`.

use zeroize::Zeroizing;

use super::cipher::FeedbackCipher;
use super::keytab::KEY_NAME_BYTES_MAX;
use crate::secret::Secret;

/// Minimum length of a packet: header, fixed part and checksum.
pub const PACKET_BYTES_MIN: usize = HEADER_BYTES + FIXED_BYTES + CHECKSUM_BYTES;
/// Maximum length of a packet.
const PACKET_BYTES_MAX: usize = 16_400;
/// Maximum length of a credential inside a packet.
pub const CREDENTIAL_BYTES_MAX: usize = 2048;
/// The time from which packets count seconds, in seconds since 1970.
pub const TIME_BASE: u64 = 1_222_183_880;
/// Number of random bytes at the begin of the encrypted part.
pub const RANDOM_BYTES: usize = 32;

const ID: [u8; 4] = *b"sss\0";
const BLOWFISH: u8 = b'0';
const HEADER_BYTES: usize = 16;
const FIXED_BYTES: usize = 40;
const CHECKSUM_BYTES: usize = 4;
const SEND_LOGIN_ID: u8 = 1;

/// The reason why bytes are not a packet, without anything of their content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// Shorter than the fixed parts, or longer than allowed.
    #[error("the credentials have a length that no packet has")]
    Length,
    /// Another protocol, or a header that violates the format.
    #[error("the header of the credentials is malformed")]
    Header,
    /// A cipher that does not exist.
    #[error("the cipher of the credentials is unknown")]
    Cipher,
    /// The checksum differs: the key is wrong or the packet is damaged.
    #[error("the credentials cannot be decrypted with the key of this id")]
    Checksum,
    /// An item that violates the format.
    #[error("an item of the credentials is malformed")]
    Item,
}

/// The clear header of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketHeader {
    /// Id of the key.
    pub key_id: i64,
    /// Name of the key; absent in version 1.
    pub key_name: Option<String>,
}

impl PacketHeader {
    /// Splits a packet into its header and its encrypted part.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn decode(packet: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&packet.len()) {
            return Err(PacketError::Length);
        }
        let (header, rest) = packet.split_first_chunk::<HEADER_BYTES>().ok_or(PacketError::Length)?;
        let [i0, i1, i2, i3, _, _, name_bytes, cipher, key_id @ ..] = *header;
        if [i0, i1, i2, i3] != ID {
            return Err(PacketError::Header);
        }
        if cipher != BLOWFISH {
            return Err(PacketError::Cipher);
        }
        let name_bytes = usize::from(name_bytes);
        if name_bytes % 8 != 0 || name_bytes > KEY_NAME_BYTES_MAX + 1 {
            return Err(PacketError::Header);
        }
        let (name, encrypted) = rest.split_at_checked(name_bytes).ok_or(PacketError::Header)?;
        if encrypted.len() < FIXED_BYTES + CHECKSUM_BYTES {
            return Err(PacketError::Length);
        }
        let key_name = match name.split_last() {
            None => None,
            Some((0, _)) => {
                let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
                Some(String::from_utf8(text.to_vec()).map_err(|_| PacketError::Header)?)
            }
            Some(_) => return Err(PacketError::Header),
        };
        Ok((Self { key_id: i64::from_be_bytes(key_id), key_name }, encrypted))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let name = self.key_name.as_deref().unwrap_or_default().as_bytes();
        let name = name.get(..KEY_NAME_BYTES_MAX).unwrap_or(name);
        let name_bytes = if self.key_name.is_some() { (name.len() + 8) & !7 } else { 0 };
        out.extend_from_slice(&ID);
        out.extend_from_slice(&[0, 0, u8::try_from(name_bytes).unwrap_or(0), BLOWFISH]);
        out.extend_from_slice(&self.key_id.to_be_bytes());
        out.extend_from_slice(name);
        out.resize(HEADER_BYTES + name_bytes, 0);
    }
}

/// The type of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemKind(pub u8);

impl ItemKind {
    /// User.
    pub const NAME: Self = Self(0x01);
    /// Virtual organization.
    pub const VORG: Self = Self(0x02);
    /// Role.
    pub const ROLE: Self = Self(0x03);
    /// Groups.
    pub const GROUPS: Self = Self(0x04);
    /// Endorsements.
    pub const ENDORSEMENTS: Self = Self(0x05);
    /// A credential.
    pub const CREDENTIAL: Self = Self(0x06);
    /// Filler.
    pub const FILLER: Self = Self(0x07);
    /// Protocol by which the original client authenticated.
    pub const PROTOCOL: Self = Self(0x08);
    /// Trace id of the original client.
    pub const TRACE_ID: Self = Self(0x09);
    /// Key of an attribute; its value follows.
    pub const ATTRIBUTE_KEY: Self = Self(0x0a);
    /// Value of an attribute.
    pub const ATTRIBUTE_VALUE: Self = Self(0x0b);
    /// Local user of the original client.
    pub const UNIX_USER: Self = Self(0x0c);
    /// Local group of the original client.
    pub const UNIX_GROUP: Self = Self(0x0d);
    /// Capabilities.
    pub const CAPABILITIES: Self = Self(0x0e);
    /// Login id, from the server to the client.
    pub const LOGIN_ID: Self = Self(0x10);
    /// Address or name of the host of the sender.
    pub const HOST: Self = Self(0x20);

    /// Reports whether the data is text with a NUL at its end. The data of unknown types is not
    /// looked at.
    fn is_text(self) -> bool {
        let is_binary = matches!(self, Self::CREDENTIAL | Self::FILLER);
        let is_known = matches!(self.0, 0x01..=0x0e | 0x10 | 0x20);
        is_known && !is_binary
    }
}

/// The decrypted part of a packet. It is wiped on drop.
pub struct PacketBody(Zeroizing<Vec<u8>>);

impl PacketBody {
    /// Creates a body without items.
    #[must_use]
    pub fn new(random: [u8; RANDOM_BYTES], time: u64, asks_login_id: bool) -> Self {
        let seconds = u32::try_from(time.saturating_sub(TIME_BASE)).unwrap_or(u32::MAX);
        // One allocation, because growing would leave copies of credentials behind.
        let mut plain = Zeroizing::new(Vec::with_capacity(PACKET_BYTES_MAX));
        plain.extend_from_slice(&random);
        plain.extend_from_slice(&seconds.to_be_bytes());
        plain.extend_from_slice(&[0, 0, 0, u8::from(asks_login_id) * SEND_LOGIN_ID]);
        Self(plain)
    }

    /// Appends an item of text; an empty text is left out.
    pub fn text(&mut self, kind: ItemKind, text: &str) {
        if !text.is_empty() {
            let data = Zeroizing::new([text.as_bytes(), b"\0"].concat());
            self.bytes(kind, &data);
        }
    }

    /// Appends an item of bytes. An item that is too long for its length field is left out.
    pub fn bytes(&mut self, kind: ItemKind, data: &[u8]) {
        if let Ok(length) = u16::try_from(data.len()) {
            self.0.push(kind.0);
            self.0.extend_from_slice(&length.to_be_bytes());
            self.0.extend_from_slice(data);
        }
    }

    /// Returns the number of bytes of all items.
    #[must_use]
    pub fn items_len(&self) -> usize {
        self.0.len().saturating_sub(FIXED_BYTES)
    }

    /// Returns the packet: header, and this body encrypted with its checksum.
    #[must_use]
    pub fn seal(mut self, header: &PacketHeader, key: &Secret) -> Vec<u8> {
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &self.0);
        let [.., c0, c1, c2, c3] = checksum.to_be_bytes();
        self.0.extend_from_slice(&[c0, c1, c2, c3]);
        FeedbackCipher::new(key.expose()).encrypt(&mut self.0);
        let mut packet = Vec::with_capacity(HEADER_BYTES + self.0.len());
        header.encode(&mut packet);
        packet.extend_from_slice(&self.0);
        packet
    }

    /// Decrypts the encrypted part of a packet and verifies its checksum.
    ///
    /// # Errors
    /// [`PacketError::Length`], [`PacketError::Checksum`].
    pub fn open(encrypted: &[u8], key: &Secret) -> Result<Self, PacketError> {
        Self::open_by(encrypted, &FeedbackCipher::new(key.expose()))
    }

    /// As [`PacketBody::open`], with a key whose schedule is known.
    pub(super) fn open_by(encrypted: &[u8], cipher: &FeedbackCipher) -> Result<Self, PacketError> {
        let mut plain = Zeroizing::new(encrypted.to_vec());
        cipher.decrypt(&mut plain);
        let (body, sent) = plain.split_last_chunk::<CHECKSUM_BYTES>().ok_or(PacketError::Length)?;
        let [.., c0, c1, c2, c3] =
            crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, body).to_be_bytes();
        let is_equal: bool =
            subtle::ConstantTimeEq::ct_eq([c0, c1, c2, c3].as_slice(), sent.as_slice()).into();
        if !is_equal {
            return Err(PacketError::Checksum);
        }
        let length = body.len();
        plain.truncate(length);
        if length < FIXED_BYTES {
            return Err(PacketError::Length);
        }
        Ok(Self(plain))
    }

    /// Returns the random bytes.
    #[must_use]
    pub fn random(&self) -> [u8; RANDOM_BYTES] {
        self.0.first_chunk().copied().unwrap_or_default()
    }

    /// Returns the time of generation, in seconds since 1970.
    #[must_use]
    pub fn time(&self) -> u64 {
        let bytes = self.0.get(RANDOM_BYTES..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        TIME_BASE + u64::from(u32::from_be_bytes(bytes))
    }

    /// Reports whether the sender asks for its login id.
    #[must_use]
    pub fn asks_login_id(&self) -> bool {
        self.0.get(FIXED_BYTES - 1).is_some_and(|options| options & SEND_LOGIN_ID != 0)
    }

    /// Returns the items.
    pub fn items(&self) -> PacketItems<'_> {
        PacketItems::new(self.0.get(FIXED_BYTES..).unwrap_or_default())
    }
}

/// An item of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PacketItem<'a> {
    /// The type.
    pub kind: ItemKind,
    /// The bytes; for text without its NUL.
    pub data: &'a [u8],
}

impl<'a> PacketItem<'a> {
    /// Returns the text.
    ///
    /// # Errors
    /// [`PacketError::Item`] for bytes that are not UTF-8 or that contain control characters.
    pub fn text(&self) -> Result<&'a str, PacketError> {
        let text = std::str::from_utf8(self.data).map_err(|_| PacketError::Item)?;
        if text.chars().any(char::is_control) { Err(PacketError::Item) } else { Ok(text) }
    }
}

/// An iterator over the items of a packet. It ends after an error.
pub struct PacketItems<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for PacketItems<'a> {
    type Item = Result<PacketItem<'a>, PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

impl<'a> PacketItems<'a> {
    /// Creates an iterator over encoded items.
    #[must_use]
    pub const fn new(items: &'a [u8]) -> Self {
        Self { rest: items }
    }

    fn take(&mut self) -> Result<PacketItem<'a>, PacketError> {
        let ([kind, l0, l1], rest) = self.rest.split_first_chunk().ok_or(PacketError::Item)?;
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        let (data, rest) = rest.split_at_checked(length).ok_or(PacketError::Item)?;
        self.rest = rest;
        let kind = ItemKind(*kind);
        if !kind.is_text() {
            return Ok(PacketItem { kind, data });
        }
        match data.split_last() {
            Some((0, text)) if !text.is_empty() && !text.contains(&0) => Ok(PacketItem { kind, data: text }),
            _ => Err(PacketError::Item),
        }
    }
}
