//! A picture as bytes: eight of magic, a little-endian version, and the values
//! as postcard writes them. Reading is total: whatever the bytes, the answer is
//! a picture or one line of what is wrong with them.

use super::Picture;
use crate::error::{Error, Result};

/// What every picture begins with.
pub const MAGIC: [u8; 8] = *b"memcudaP";
/// Version of the layout. Another one is refused.
pub const VERSION: u32 = 3;
/// Most bytes that a picture may have. One of a million blocks has about 30 MB.
pub const MOST: u64 = 4 << 30;

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
