//! [`DerReader`]: reads elements of DER. The slices it returns are those of the input, because
//! signatures cover the encoding.

/// Tags of DER.
pub(super) mod tag {
    pub(in crate::grid) const BOOLEAN: u8 = 0x01;
    pub(in crate::grid) const INTEGER: u8 = 0x02;
    pub(in crate::grid) const BIT_STRING: u8 = 0x03;
    pub(in crate::grid) const OCTET_STRING: u8 = 0x04;
    pub(in crate::grid) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(in crate::grid) const UTC_TIME: u8 = 0x17;
    pub(in crate::grid) const GENERALIZED_TIME: u8 = 0x18;
    pub(in crate::grid) const SEQUENCE: u8 = 0x30;
    pub(in crate::grid) const SET: u8 = 0x31;
    /// Constructed context-specific tags `[0]`, `[1]` and `[3]`.
    pub(in crate::grid) const CONTEXT_0: u8 = 0xa0;
    pub(in crate::grid) const CONTEXT_1: u8 = 0xa1;
    pub(in crate::grid) const CONTEXT_3: u8 = 0xa3;
}

/// The input is not the DER that is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MalformedDer;

/// An element: its tag, its content, and all its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DerElement<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    pub(super) whole: &'a [u8],
}

/// A sequence of elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns a reader of the content of `bytes`, which are one element with this tag.
    pub(super) fn of_element(bytes: &'a [u8], tag: u8) -> Result<Self, MalformedDer> {
        let mut reader = Self(bytes);
        let element = reader.read_as(tag)?;
        reader.end()?;
        Ok(Self(element.content))
    }

    /// Returns the bytes that are not read.
    pub(super) fn content(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an error unless all was read.
    pub(super) fn end(&self) -> Result<(), MalformedDer> {
        if self.0.is_empty() { Ok(()) } else { Err(MalformedDer) }
    }

    /// Reads an element.
    pub(super) fn next(&mut self) -> Result<DerElement<'a>, MalformedDer> {
        let input = self.0;
        let (&tag, rest) = input.split_first().ok_or(MalformedDer)?;
        // Tags of several bytes do not occur in certificates.
        if tag & 0x1f == 0x1f {
            return Err(MalformedDer);
        }
        let (&first, rest) = rest.split_first().ok_or(MalformedDer)?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let bytes = usize::from(first & 0x7f);
            if bytes == 0 || bytes > 4 {
                return Err(MalformedDer);
            }
            let (digits, rest) = rest.split_at_checked(bytes).ok_or(MalformedDer)?;
            let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            // The encoding of a length is the shortest one.
            if length < 0x80 || digits.first() == Some(&0) {
                return Err(MalformedDer);
            }
            (length, rest)
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(MalformedDer)?;
        let whole = input.get(..input.len() - rest.len()).ok_or(MalformedDer)?;
        self.0 = rest;
        Ok(DerElement { tag, content, whole })
    }

    /// Reads an element with this tag.
    pub(super) fn read_as(&mut self, tag: u8) -> Result<DerElement<'a>, MalformedDer> {
        let element = self.next()?;
        if element.tag == tag { Ok(element) } else { Err(MalformedDer) }
    }

    /// Reads an element if it has one of these tags.
    pub(super) fn optional(&mut self, tags: &[u8]) -> Result<Option<DerElement<'a>>, MalformedDer> {
        match self.0.first() {
            Some(tag) if tags.contains(tag) => self.next().map(Some),
            _ => Ok(None),
        }
    }

    /// Reads a sequence and returns a reader of its content.
    pub(super) fn sequence(&mut self) -> Result<Self, MalformedDer> {
        Ok(Self(self.read_as(tag::SEQUENCE)?.content))
    }

    /// Reads a number that is not negative. Larger ones than `u32` are its maximum.
    pub(super) fn number(&mut self) -> Result<u32, MalformedDer> {
        small_number(self.read_as(tag::INTEGER)?.content)
    }

    /// Reads an optional boolean whose default is false.
    pub(super) fn flag(&mut self) -> Result<bool, MalformedDer> {
        match self.optional(&[tag::BOOLEAN])?.map(|element| element.content) {
            None | Some([0]) => Ok(false),
            Some([0xff]) => Ok(true),
            Some(_) => Err(MalformedDer),
        }
    }

    /// Reads a bit string of whole bytes.
    pub(super) fn bytes_of_bits(&mut self) -> Result<&'a [u8], MalformedDer> {
        match self.read_as(tag::BIT_STRING)?.content.split_first() {
            Some((0, bytes)) => Ok(bytes),
            _ => Err(MalformedDer),
        }
    }
}

fn small_number(content: &[u8]) -> Result<u32, MalformedDer> {
    let (&first, rest) = content.split_first().ok_or(MalformedDer)?;
    let is_longer_than_needed = first == 0 && rest.first().is_some_and(|second| *second < 0x80);
    if first >= 0x80 || is_longer_than_needed {
        return Err(MalformedDer);
    }
    let digits = content.iter().skip_while(|digit| **digit == 0);
    if digits.clone().count() > 4 {
        return Ok(u32::MAX);
    }
    Ok(digits.fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

/// Appends an element.
pub(super) fn write_element(tag: u8, content: &[u8], into: &mut Vec<u8>) {
    into.push(tag);
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => into.push(length),
        _ => {
            let digits = content.len().to_be_bytes();
            let zeros = digits.iter().take_while(|digit| **digit == 0).count();
            let digits = digits.get(zeros..).unwrap_or_default();
            into.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
            into.extend_from_slice(digits);
        }
    }
    into.extend_from_slice(content);
}

/// Returns the dotted form of an object identifier.
pub(super) fn dotted(identifier: &[u8]) -> Result<String, MalformedDer> {
    let mut arcs: Vec<u64> = Vec::new();
    let mut arc: u64 = 0;
    for byte in identifier {
        arc = arc.checked_mul(128).ok_or(MalformedDer)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            arcs.push(arc);
            arc = 0;
        }
    }
    let (Some(first), Some(0..0x80)) = (arcs.first().copied(), identifier.last()) else {
        return Err(MalformedDer);
    };
    let top = (first / 40).min(2);
    let rest = arcs.iter().skip(1).map(|arc| format!(".{arc}"));
    Ok(std::iter::once(format!("{top}.{}", first - top * 40)).chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_that_are_not_der_are_refused() {
        let cases: [&[u8]; 9] = [
            &[],
            &[0x30],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 1, 0],
            &[0x30, 0x82, 0, 0x80],
            &[0x1f, 0x81, 0, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
        ];
        for case in cases {
            assert!(DerReader::new(case).next().is_err(), "{case:x?}");
        }
        let long = [&[0x30, 0x81, 0x80][..], &[0; 0x80]].concat();
        assert_eq!(DerReader::new(&long).sequence().unwrap().0.len(), 0x80);
    }

    #[test]
    fn identifiers_have_a_dotted_form() {
        assert_eq!(dotted(&[0x55, 4, 3]).as_deref(), Ok("2.5.4.3"));
        assert_eq!(dotted(&[0x2b, 6, 1, 5, 5, 7, 1, 14]).as_deref(), Ok("1.3.6.1.5.5.7.1.14"));
        assert_eq!(dotted(&[0x88, 0x37]).as_deref(), Ok("2.999"));
        for wrong in [&[][..], &[0x55, 0x84], &[0xff; 12]] {
            assert_eq!(dotted(wrong), Err(MalformedDer));
        }
    }

    #[test]
    fn numbers_have_one_encoding() {
        let read = |bytes: &[u8]| DerReader::new(bytes).number().ok();
        assert_eq!(read(&[2, 1, 0]), Some(0));
        assert_eq!(read(&[2, 2, 0, 0x80]), Some(128));
        assert_eq!(read(&[2, 4, 0x7f, 0, 0, 1]), Some(0x7f00_0001));
        assert_eq!(read(&[2, 5, 1, 0, 0, 0, 0]), Some(u32::MAX));
        for wrong in [&[2, 0][..], &[2, 1, 0x80], &[2, 2, 0, 1], &[2, 2, 0, 0]] {
            assert_eq!(read(wrong), None, "{wrong:x?}");
        }
    }
}
