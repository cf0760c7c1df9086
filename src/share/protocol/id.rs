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

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let group = |from: usize, to: usize| {
            let bytes = self.0[from..to].iter();
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let groups = [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)].map(|(from, to)| group(from, to));
        write!(f, "GPU-{}", groups.join("-"))
    }
}

impl std::fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
