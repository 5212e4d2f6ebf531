//! JSON objects without duplicate members. Parsers differ in which of two equal members counts, so a
//! token with duplicate claims could mean one thing to its issuer and another one to the server.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// A JSON object in which each name occurs once.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct JsonObject(Map<String, Value>);

impl JsonObject {
    /// Parses an object. `None` for other values, duplicate names, and text after the object.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Returns a member; `null` counts as missing.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueMembers)
    }
}

struct UniqueMembers;

impl<'de> Visitor<'de> for UniqueMembers {
    type Value = JsonObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object without duplicate members")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<JsonObject, A::Error> {
        let mut members = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("duplicate member"));
            }
        }
        Ok(JsonObject(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_members_are_refused() {
        let parsed = JsonObject::parse(br#"{"a": 1, "b": null}"#).unwrap();
        assert!(parsed.get("a").is_some() && parsed.get("b").is_none() && parsed.get("c").is_none());
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"a": 1, "\u0061": 2}"#, "[]", "{} x", "", "{"] {
            assert_eq!(JsonObject::parse(text.as_bytes()), None, "{text}");
        }
    }
}
