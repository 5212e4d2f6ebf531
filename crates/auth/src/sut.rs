//! The buffer of typed fields in which `gsi` and `pwd` send their messages.
//!
//! ```text
//! message = protocol NUL  step(i32)  *field  i32(0)
//! field   = type(i32, not 0)  length(i32)  bytes
//! ```
//!
//! A field can hold a message again, plain or encrypted. The parser copies nothing and checks each
//! length before it is used.
//!
//! Source: security facts, section 2.0.

/// Maximum length of a message in bytes.
pub const SUT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of fields of a message.
pub const SUT_FIELDS_MAX: usize = 64;

/// The end of the fields.
const END: u32 = 0;

/// A field that is skipped.
const INACTIVE: u32 = 1;

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SutField(pub u32);

impl SutField {
    /// The crypto module, always `ssl`.
    pub const CRYPTO_MODULE: Self = Self(3000);
    /// A message inside the message, plain or encrypted.
    pub const MAIN: Self = Self(3001);
    /// A public key.
    pub const PUBLIC_KEY: Self = Self(3004);
    /// The public part of a key agreement.
    pub const CIPHER: Self = Self(3005);
    /// A random challenge.
    pub const CHALLENGE: Self = Self(3006);
    /// The answer to the challenge of the peer.
    pub const SIGNED_CHALLENGE: Self = Self(3007);
    /// The user that the client asks for.
    pub const USER: Self = Self(3008);
    /// Text.
    pub const MESSAGE: Self = Self(3011);
    /// The version of the protocol, an i32.
    pub const VERSION: Self = Self(3014);
    /// Options of the client, an i32.
    pub const CLIENT_OPTIONS: Self = Self(3019);
    /// Certificates as PEM.
    pub const X509: Self = Self(3022);
    /// The hashes of authorities.
    pub const ISSUER_HASH: Self = Self(3023);
    /// A certificate request as PEM.
    pub const X509_REQUEST: Self = Self(3024);
    /// Ciphers, or the chosen one.
    pub const CIPHER_NAMES: Self = Self(3025);
    /// Digests, or the chosen one.
    pub const DIGEST_NAMES: Self = Self(3026);

    /// The types of which a message must not have two: which one counts would be up to the reader.
    const UNIQUE: [Self; 7] = [
        Self::MAIN,
        Self::PUBLIC_KEY,
        Self::CIPHER,
        Self::CIPHER_NAMES,
        Self::X509,
        Self::CHALLENGE,
        Self::SIGNED_CHALLENGE,
    ];
}

/// The reason why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SutError {
    /// It is too long.
    #[error("the message is longer than {SUT_BYTES_MAX} bytes")]
    TooLong,
    /// It is of another protocol.
    #[error("the message is of another protocol")]
    OtherProtocol,
    /// It ends within a field, or has no end.
    #[error("the message is incomplete")]
    Incomplete,
    /// There are bytes behind its end.
    #[error("there are bytes behind the end of the message")]
    Trailing,
    /// It has too many fields.
    #[error("the message has more than {SUT_FIELDS_MAX} fields")]
    TooManyFields,
    /// It has two fields of a type that must be unique.
    #[error("the message has two fields of the type {0}")]
    Duplicate(u32),
}

/// A decoded message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SutMessage<'a> {
    /// The step of the exchange.
    pub step: u32,
    fields: Vec<(SutField, &'a [u8])>,
}

impl<'a> SutMessage<'a> {
    /// Decodes a message of a protocol.
    ///
    /// # Errors
    /// [`SutError`].
    pub fn decode(protocol: &str, bytes: &'a [u8]) -> Result<Self, SutError> {
        if bytes.len() > SUT_BYTES_MAX {
            return Err(SutError::TooLong);
        }
        let rest = bytes.strip_prefix(protocol.as_bytes()).and_then(|rest| rest.strip_prefix(b"\0"));
        let mut rest = rest.ok_or(SutError::OtherProtocol)?;
        let step = take_number(&mut rest)?;
        let (mut fields, mut count) = (Vec::new(), 0);
        loop {
            let kind = take_number(&mut rest)?;
            if kind == END {
                break;
            }
            count += 1;
            if count > SUT_FIELDS_MAX {
                return Err(SutError::TooManyFields);
            }
            let length = usize::try_from(take_number(&mut rest)?).map_err(|_| SutError::Incomplete)?;
            let (content, after) = rest.split_at_checked(length).ok_or(SutError::Incomplete)?;
            rest = after;
            let field = SutField(kind);
            if SutField::UNIQUE.contains(&field) && fields.iter().any(|(known, _)| *known == field) {
                return Err(SutError::Duplicate(kind));
            }
            if kind != INACTIVE {
                fields.push((field, content));
            }
        }
        if rest.is_empty() { Ok(Self { step, fields }) } else { Err(SutError::Trailing) }
    }

    /// Decodes the message inside of a message of this step.
    pub(crate) fn decode_inner(protocol: &str, bytes: &'a [u8], step: u32) -> Result<Self, String> {
        let message = Self::decode(protocol, bytes).map_err(|error| error.to_string())?;
        let is_nested = message.field(SutField::MAIN).is_some();
        if message.step == step && !is_nested {
            Ok(message)
        } else {
            Err("the inner message is of another step".to_owned())
        }
    }

    /// Returns the content of the first field of this type.
    #[must_use]
    pub fn field(&self, field: SutField) -> Option<&'a [u8]> {
        self.fields.iter().find(|(known, _)| *known == field).map(|(_, content)| *content)
    }

    /// Returns the number in the first field of this type; `None` if there is none, or its length is
    /// not that of a number.
    #[must_use]
    pub fn number(&self, field: SutField) -> Option<u32> {
        self.field(field)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Returns the text in the first field of this type, without the NUL that peers may append.
    #[must_use]
    pub fn text(&self, field: SutField) -> Option<&'a str> {
        let content = self.field(field)?;
        std::str::from_utf8(content.strip_suffix(b"\0").unwrap_or(content)).ok()
    }

    /// Returns the fields in their order.
    pub fn fields(&self) -> impl Iterator<Item = (SutField, &'a [u8])> {
        self.fields.iter().copied()
    }
}

fn take_number(rest: &mut &[u8]) -> Result<u32, SutError> {
    let (number, after) = rest.split_first_chunk().ok_or(SutError::Incomplete)?;
    *rest = after;
    Ok(u32::from_be_bytes(*number))
}

/// A message that is encoded.
pub struct SutWriter(Vec<u8>);

impl SutWriter {
    /// Begins a message of a protocol.
    #[must_use]
    pub fn new(protocol: &str, step: u32) -> Self {
        let mut bytes = protocol.as_bytes().to_vec();
        bytes.push(0);
        bytes.extend_from_slice(&step.to_be_bytes());
        Self(bytes)
    }

    /// Appends a field.
    #[must_use]
    pub fn with(mut self, field: SutField, content: &[u8]) -> Self {
        // A longer field would be a message that no peer accepts.
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&field.0.to_be_bytes());
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(content);
        self
    }

    /// Appends a number.
    #[must_use]
    pub fn with_number(self, field: SutField, number: u32) -> Self {
        self.with(field, &number.to_be_bytes())
    }

    /// Ends the message and returns its bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&END.to_be_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_encoding() {
        let bytes = SutWriter::new("gsi", 1000)
            .with(SutField::CRYPTO_MODULE, b"ssl")
            .with(SutField(INACTIVE), b"skipped")
            .with_number(SutField::VERSION, 10600)
            .with(SutField::USER, b"me\0")
            .finish();
        let message = SutMessage::decode("gsi", &bytes).unwrap();
        assert_eq!((message.step, message.number(SutField::VERSION)), (1000, Some(10600)));
        assert_eq!((message.text(SutField::USER), message.fields().count()), (Some("me"), 3));
        assert_eq!((message.number(SutField::USER), message.field(SutField::MAIN)), (None, None));
        for length in 0..bytes.len() {
            assert!(SutMessage::decode("gsi", &bytes[..length]).is_err(), "{length}");
        }
        assert_eq!(SutMessage::decode("pwd", &bytes), Err(SutError::OtherProtocol));
        assert_eq!(SutMessage::decode("gsi", &[&bytes[..], b"\0"].concat()), Err(SutError::Trailing));
    }

    #[test]
    fn fields_are_limited() {
        let many = |count| (0..count).fold(SutWriter::new("gsi", 1), |all, _| all.with(SutField(9), b""));
        assert!(SutMessage::decode("gsi", &many(SUT_FIELDS_MAX).finish()).is_ok());
        let found = SutMessage::decode("gsi", &many(SUT_FIELDS_MAX + 1).finish()).map(drop);
        assert_eq!(found, Err(SutError::TooManyFields));
        let huge = SutWriter::new("gsi", 1).with(SutField(9), &vec![0; SUT_BYTES_MAX]).finish();
        assert_eq!(SutMessage::decode("gsi", &huge), Err(SutError::TooLong));
        for field in SutField::UNIQUE {
            let twice = SutWriter::new("gsi", 1).with(field, b"a").with(field, b"a").finish();
            assert_eq!(SutMessage::decode("gsi", &twice), Err(SutError::Duplicate(field.0)));
        }
        for length in [u32::MAX, 0x7fff_ffff, 1] {
            let bytes = [&b"gsi\0\0\0\0\x01\0\0\0\x09"[..], &length.to_be_bytes()].concat();
            assert_eq!(SutMessage::decode("gsi", &bytes), Err(SutError::Incomplete));
        }
    }
}
