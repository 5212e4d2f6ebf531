//! The identity of a client as one line of text, by which a server reports it to the client itself
//! (`query config scalla.identity`).
//!
//! The line has the form `key=value&key=value`. Bytes of values other than letters, digits and
//! `-._~/:@[]*+,;` are escaped as `%XX`, because names of certificates contain blanks, `=` and `&`.

use crate::{Entity, HostName};

/// The name of the value in `query config`.
pub const IDENTITY_KEY: &str = "scalla.identity";

/// Returns the line for an authenticated client, or for a client of `host` that was not asked to
/// authenticate. Credentials are not part of it.
#[must_use]
pub fn encode_identity(entity: Option<&Entity>, host: &str) -> String {
    let mut line = String::new();
    let Some(entity) = entity else {
        push(&mut line, "host", host);
        return line;
    };
    push(&mut line, "protocol", &entity.protocol);
    let optional = [
        ("name", &entity.name),
        ("organizations", &entity.vorg),
        ("roles", &entity.role),
        ("groups", &entity.groups),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            push(&mut line, key, value);
        }
    }
    if let Some(rule) = entity.map_line {
        push(&mut line, "map_line", &rule.to_string());
    }
    push(&mut line, "host", &entity.host);
    if let HostName::Known(name) = &entity.host_name {
        push(&mut line, "host_name", name);
    }
    line
}

fn push(line: &mut String, key: &str, value: &str) {
    if !line.is_empty() {
        line.push('&');
    }
    line.push_str(key);
    line.push('=');
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:@[]*+,;".contains(&byte) {
            line.push(char::from(byte));
        } else {
            line.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Returns the keys and values of a line. `None` if it does not have the form of one.
#[must_use]
pub fn decode_identity(line: &str) -> Option<Vec<(String, String)>> {
    line.split('&')
        .map(|part| part.split_once('=').and_then(|(key, value)| Some((key.to_owned(), unescape(value)?))))
        .collect()
}

fn unescape(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::EntityFields;

    #[test]
    fn a_line_has_the_values_of_the_entity_with_every_byte() {
        let name = "/DC=org/CN=A & B=50%\n\u{e9}";
        let entity = Entity::new(EntityFields {
            protocol: "sss".into(),
            name: Some(name.into()),
            groups: Some("staff users".into()),
            map_line: Some(7),
            host: "h".into(),
            host_name: HostName::Known("h.example.org".into()),
            ..EntityFields::default()
        });
        let line = encode_identity(Some(&entity), "ignored");
        assert!(line.bytes().all(|byte| byte.is_ascii_graphic()), "{line}");
        let expected = [
            ("protocol", "sss"),
            ("name", name),
            ("groups", "staff users"),
            ("map_line", "7"),
            ("host", "h"),
            ("host_name", "h.example.org"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(decode_identity(&line), Some(expected.to_vec()));
        assert_eq!(encode_identity(None, "there"), "host=there");
    }

    #[test]
    fn other_texts_are_not_lines() {
        for text in ["scalla.identity", "", "a=%", "a=%4", "a=%+1", "a=%zz", "a=1&b"] {
            assert_eq!(decode_identity(text), None, "{text}");
        }
    }
}
