//! Numbers that mean the same in every process: allocations and devices.

use serde::{Deserialize, Serialize};

/// Which allocation: 128 random bits, never used twice. A name that is deleted
/// and made again is another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub [u8; 16]);

impl Generation {
    /// One that nobody has; `None` where the kernel gives no randomness.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        (got == Ok(bytes.len())).then_some(Self(bytes))
    }
}

/// A device, by the driver's UUID of it: the same in every process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceId(pub [u8; 16]);

/// Writes sixteen bytes in hexadecimal.
fn hex(bytes: &[u8; 16], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        hex(&self.0, f)
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        hex(&self.0, f)
    }
}

impl DeviceId {
    /// As NVIDIA's tools write it behind a kind of device: `GPU`, or `MIG` for a part of one.
    pub fn named(self, kind: &str) -> String {
        let group = |from: usize, to: usize| {
            let bytes = self.0[from..to].iter();
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let groups = [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)].map(|(from, to)| group(from, to));
        format!("{kind}-{}", groups.join("-"))
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.named("GPU"))
    }
}

impl std::fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_as_tools_write_it() {
        let device = DeviceId(0x00112233_44556677_8899aabb_ccddeeff_u128.to_be_bytes());
        let digits = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(device.to_string(), format!("GPU-{digits}"));
        assert_eq!(device.named("MIG"), format!("MIG-{digits}"));
    }
}
