//! The 64 bytes that stand for shared memory where CUDA has a
//! `CUipcMemHandle`: a program passes them on without looking inside. They name
//! memory and grant nothing; who may have it is the keeper's to say.

use super::protocol::{DeviceId, Entry, Generation};

/// Bytes of a handle (`CU_IPC_HANDLE_SIZE`).
pub const BYTES: usize = 64;
/// The layout that is written; another one is refused.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"memcuda\0";

/// What a handle says. In memory, little-endian:
///
/// | bytes | content |
/// |---|---|
/// | 0-7 | magic, `memcuda` and a zero |
/// | 8-9 | version of this layout |
/// | 10-15 | the first six bytes of the device's UUID |
/// | 16-23 | node: which host, by its boot |
/// | 24-39 | generation of the allocation |
/// | 40-47 | bytes that were asked for |
/// | 48-55 | bytes of the physical handles below |
/// | 56-63 | where in these the allocation begins, in bytes |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// The host and its boot.
    pub node: u64,
    /// Which allocation; never used twice.
    pub generation: Generation,
    /// Bytes that the program asked for.
    pub bytes: u64,
    /// Bytes of the physical handles that hold it.
    pub mapped: u64,
    /// First byte of the allocation in the first of these.
    pub offset: u64,
    /// The beginning of the UUID of its device.
    pub device: [u8; 6],
}

const _: () = assert!(8 + 2 + 6 + 8 + 16 + 8 + 8 + 8 == BYTES);

/// Why 64 bytes are not a handle of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The driver's own, or anything else.
    Foreign,
    /// Ours, in a layout of this number.
    Version(u16),
}

impl Handle {
    /// The handle of an entry of the keeper on this node.
    pub fn of(node: u64, entry: &Entry) -> Self {
        Self {
            node,
            generation: entry.generation,
            bytes: entry.spec.bytes,
            mapped: entry.mapped,
            offset: entry.offset,
            device: Self::digest(entry.spec.device),
        }
    }

    /// The beginning of a UUID, as handles hold it.
    pub fn digest(device: DeviceId) -> [u8; 6] {
        let mut digest = [0; 6];
        digest.copy_from_slice(&device.0[..6]);
        digest
    }

    /// As 64 bytes.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&VERSION.to_le_bytes());
        put(&self.device);
        put(&self.node.to_le_bytes());
        put(&self.generation.0);
        put(&self.bytes.to_le_bytes());
        put(&self.mapped.to_le_bytes());
        put(&self.offset.to_le_bytes());
        bytes
    }

    /// From 64 bytes that a program brought.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Result<Self, Unreadable> {
        fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
            let (field, after) = rest.split_first_chunk().expect("the fields are 64 bytes");
            *rest = after;
            *field
        }
        let rest = &mut &bytes[..];
        if take(rest) != MAGIC {
            return Err(Unreadable::Foreign);
        }
        let version = u16::from_le_bytes(take(rest));
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        Ok(Self {
            device: take(rest),
            node: u64::from_le_bytes(take(rest)),
            generation: Generation(take(rest)),
            bytes: u64::from_le_bytes(take(rest)),
            mapped: u64::from_le_bytes(take(rest)),
            offset: u64::from_le_bytes(take(rest)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> Handle {
        Handle {
            node: 0x0102_0304_0506_0708,
            generation: Generation([9; 16]),
            bytes: 3 << 20,
            mapped: 4 << 20,
            offset: 512,
            device: *b"abcdef",
        }
    }

    #[test]
    fn a_handle_survives_the_way() {
        assert_eq!(Handle::from_bytes(&handle().to_bytes()), Ok(handle()));
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        assert_eq!(Handle::from_bytes(&[0; BYTES]), Err(Unreadable::Foreign));
        let mut newer = handle().to_bytes();
        newer[8] = 7;
        assert_eq!(Handle::from_bytes(&newer), Err(Unreadable::Version(7)));
    }
}
