//! A picture as bytes: eight of magic, a little-endian version, and the values
//! as postcard writes them. Reading is total: whatever the bytes, the answer is
//! a picture or one line of what is wrong with them, and there is an end to the memory
//! that it takes: whose picture it is, nobody has chosen.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error as _, SeqAccess, Visitor};

use super::{Device, Picture};
use crate::error::{Error, Result};

/// What every picture begins with.
pub const MAGIC: [u8; 8] = *b"memcudaP";
/// Version of the layout. Another one is refused.
pub const VERSION: u32 = 3;
/// Most bytes that a picture may have: two million blocks, of about 30 each. Read and put in
/// order, they take up to seventy times as much memory where they say nothing.
pub const MOST: u64 = 64 << 20;
/// Most devices of a process. In memory each takes more than twenty times its bytes here.
const DEVICES: usize = 128;

const HEADER: usize = MAGIC.len() + size_of::<u32>();

/// The bytes of a picture; `None` only where there is no memory for them.
pub fn encode(picture: &Picture) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    postcard::to_extend(picture, bytes).ok()
}

/// The picture that these bytes are.
pub fn decode(bytes: &[u8]) -> Result<Picture> {
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        return Err(Error::new("not a memcuda picture or report"));
    };
    let Some((version, body)) = rest.split_first_chunk() else {
        return Err(Error::new("a picture that is cut short"));
    };
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(Error::new(format!(
            "a picture of version {version}; this memcuda reads version {VERSION}: use the memcuda command that belongs to the process's libmemcuda.so"
        )));
    }
    match postcard::take_from_bytes(body) {
        Ok((picture, [])) => Ok(picture),
        Ok((_, rest)) => Err(Error::new(format!(
            "a damaged picture: {} bytes behind its end",
            rest.len()
        ))),
        Err(postcard::Error::DeserializeUnexpectedEnd) => {
            Err(Error::new("a picture that is cut short"))
        }
        Err(_) => Err(Error::new("a damaged picture")),
    }
}

/// Reads the devices of a picture, not more than a process can have.
pub fn devices<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Device>, D::Error> {
    struct Few;

    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Device>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {DEVICES} devices")
        }

        fn visit_seq<A: SeqAccess<'de>>(
            self,
            mut all: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let mut devices = Vec::new();
            while let Some(device) = all.next_element()? {
                if devices.len() == DEVICES {
                    return Err(A::Error::invalid_length(DEVICES + 1, &self));
                }
                devices.push(device);
            }
            Ok(devices)
        }
    }

    from.deserialize_seq(Few)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::layout::Layout;
    use crate::picture::tests::{example, random_picture};
    use crate::random::Random;

    #[test]
    fn what_is_written_is_read() {
        for picture in [Picture::default(), example()] {
            assert_eq!(decode(&encode(&picture).unwrap()), Ok(picture));
        }
        let mut random = Random(7);
        for _ in 0..200 {
            let picture = random_picture(&mut random);
            assert_eq!(decode(&encode(&picture).unwrap()), Ok(picture));
        }
    }

    #[test]
    fn what_is_no_picture_is_refused_with_the_reason() {
        let bytes = encode(&example()).unwrap();
        let message = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        assert!(message(b"").contains("not a memcuda picture"));
        assert!(message(b"memcudaQ and more").contains("not a memcuda picture"));
        for end in 8..bytes.len() {
            assert_eq!(
                message(&bytes[..end]),
                "a picture that is cut short",
                "{end}"
            );
        }
        let mut other = bytes.clone();
        other[8] = 9;
        assert!(message(&other).contains("of version 9; this memcuda reads version 3"));
        let mut longer = bytes;
        longer.push(0);
        assert!(message(&longer).contains("1 bytes behind"));
    }

    #[test]
    fn a_picture_has_no_more_devices_than_a_process_can_have() {
        let of = |devices| Picture {
            devices: vec![Device::default(); devices],
            ..Picture::default()
        };
        let read = |picture: &Picture| decode(&encode(picture).unwrap());
        let (most, more) = (of(DEVICES), of(DEVICES + 1));
        assert_eq!(read(&most), Ok(most));
        assert_eq!(read(&more).unwrap_err().to_string(), "a damaged picture");
    }

    /// Any bytes are a picture or an error, and what is a picture can be put in
    /// order. `MEMCUDA_FUZZ` is the number of executions.
    #[test]
    fn random_bytes_are_a_picture_or_an_error() {
        let count = std::env::var("MEMCUDA_FUZZ").map_or(20_000, |n| n.parse().unwrap());
        let mut random = Random(0x2545_F491_4F6C_DD1D);
        let mut pictures = 0;
        for _ in 0..count {
            let mut bytes = encode(&random_picture(&mut random)).unwrap();
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at),
                    _ => bytes.insert(at, random.next() as u8),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            match decode(&bytes) {
                Ok(picture) => {
                    pictures += 1;
                    for device in &picture.devices {
                        Layout::of(&device.pool);
                    }
                }
                Err(error) => assert_eq!(error.to_string().lines().count(), 1),
            }
        }
        assert!(pictures > count / 10, "{pictures} of {count} were pictures");
    }
}
