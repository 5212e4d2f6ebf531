//! The body of the `kXR_ok` to `kXR_protocol`.
//!
//! | bytes | field  | type | meaning                                                      |
//! |-------|--------|------|--------------------------------------------------------------|
//! | 0..4  | pval   | i32  | protocol version of the server                               |
//! | 4..8  | flags  | u32  | [`ServerFlags`]; the role number for clients of version 0    |
//! | 8..   | B body |      | on request: `'B'`, 0, length u16, text                       |
//! |       | S body |      | on request: `'S'`, 0, secver, secopt, seclvl, secvsz, secvec |
//!
//! The text of the B body is padded with NULs so that 4 + length is a multiple of 8. `secvec`
//! consists of secvsz pairs (reqindex, requirement). Each body may be absent, so each begins with a
//! tag.
//!
//! Source: xroot protocol 5.2.0, section 1.7. Recorded: `fs_stat`, `auth_unix_sigver`,
//! `raw_bindif`.

use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::codes::{RequestCode, SecurityLevel, SignRequirement};
use crate::xroot::flags::{SecurityOptions, ServerFlags};

/// Version, role and abilities of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolReply<'a> {
    /// Protocol version of the server, see [`PROTOCOL_VERSION`](crate::xroot::PROTOCOL_VERSION).
    pub pval: i32,
    /// Role and abilities of the server.
    pub flags: ServerFlags,
    /// Interfaces for bound connections, `host:port` separated by commas, padded with NULs. Clients
    /// of XRootD 6.1 do not support this field on little-endian machines.
    pub bind_interfaces: Option<&'a [u8]>,
    /// Requests that must be signed.
    pub security: Option<SecurityRequirements<'a>>,
}

/// Requests that must be signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecurityRequirements<'a> {
    /// Version of the structure, 0.
    pub secver: u8,
    /// Options for all requests.
    pub secopt: SecurityOptions,
    /// The level whose table applies.
    pub seclvl: SecurityLevel,
    /// Pairs of `requestid - 3000` and [`SignRequirement`] that override the table.
    pub overrides: &'a [[u8; 2]],
}

impl SecurityRequirements<'_> {
    /// Returns the overrides with their codes.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = (RequestCode, SignRequirement)> + '_ {
        let code = |index: u8| RequestCode(RequestCode::FIRST + u16::from(index));
        self.overrides.iter().map(move |[index, requirement]| (code(*index), SignRequirement(*requirement)))
    }
}

impl Encode for ProtocolReply<'_> {
    /// Appends the body. The bind interfaces are padded, and omitted if they are too long for their
    /// length field.
    fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = FieldWriter::new(out);
        writer.i32(self.pval).u32(self.flags.0);
        if let Some(text) = self.bind_interfaces {
            let padded = (text.len() + 4).next_multiple_of(8) - 4;
            if let Ok(length) = u16::try_from(padded) {
                writer.u8(b'B').u8(0).u16(length).bytes(text);
                (text.len()..padded).for_each(|_| {
                    writer.u8(0);
                });
            }
        }
        if let Some(security) = &self.security {
            // There are 256 possible request codes, but the one-byte count limits the vector to
            // 255.
            let pairs = security.overrides.get(..255).unwrap_or(security.overrides);
            writer.u8(b'S').u8(0).u8(security.secver).u8(security.secopt.0).u8(security.seclvl.0);
            writer.u8(u8::try_from(pairs.len()).unwrap_or(u8::MAX)).bytes(pairs.as_flattened());
        }
    }
}

impl<'a> Decode<'a> for ProtocolReply<'a> {
    /// Decodes the body. Bytes behind an unknown tag are ignored, because a later version may
    /// append more.
    ///
    /// # Errors
    /// [`WireError::Short`] for a truncated body.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        let pval = reader.i32("pval")?;
        let flags = ServerFlags(reader.u32("flags")?);
        let mut reply = Self { pval, flags, bind_interfaces: None, security: None };
        while let Some(tag) = reader.rest().first() {
            match tag {
                b'B' if reply.bind_interfaces.is_none() => {
                    reader.array::<2>("bind interfaces")?;
                    let length = reader.u16("bind interfaces length")?;
                    reply.bind_interfaces = Some(reader.bytes(length.into(), "bind interfaces")?);
                }
                b'S' if reply.security.is_none() => {
                    let [_, _, secver, secopt, seclvl, secvsz] = reader.array("security requirements")?;
                    let (overrides, _) = reader.bytes(usize::from(secvsz) * 2, "secvec")?.as_chunks::<2>();
                    reply.security = Some(SecurityRequirements {
                        secver,
                        secopt: SecurityOptions(secopt),
                        seclvl: SecurityLevel(seclvl),
                        overrides,
                    });
                }
                _ => break,
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_identified_by_their_tags() {
        let overrides = [[10, 2], [1, 0]];
        let security = SecurityRequirements {
            secver: 0,
            secopt: SecurityOptions::FORCE,
            seclvl: SecurityLevel::INTENSE,
            overrides: &overrides,
        };
        let reply = ProtocolReply {
            pval: 0x520,
            flags: ServerFlags(0x0030_0001),
            bind_interfaces: Some(b"127.0.0.2:21007"),
            security: Some(security),
        };
        let out = reply.encoded();
        assert_eq!(&out[8..12], b"B\0\0\x14");
        let back = ProtocolReply::decode(&out).unwrap();
        assert_eq!(back.bind_interfaces, Some(&b"127.0.0.2:21007\0\0\0\0\0"[..]));
        assert_eq!(back.security, Some(security));
        assert_eq!(
            back.security.unwrap().overrides().collect::<Vec<_>>(),
            [(RequestCode::OPEN, SignRequirement::NEEDED), (RequestCode::QUERY, SignRequirement::IGNORE)]
        );
        assert!(ProtocolReply::decode(&out[..out.len() - 1]).is_err());
        assert!(ProtocolReply::decode(&out[..30]).is_err());
    }
}
