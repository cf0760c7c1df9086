//! What is known of a name, or of an unnamed export.

use serde::{Deserialize, Serialize};

use super::*;
use crate::names::{Backend, Dtype, MOST_EXTENTS, Name};

/// What a name holds, or is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Bytes; 0 where an attacher takes any.
    pub bytes: u64,
    /// Type of an element, if anybody said.
    pub dtype: Option<Dtype>,
    /// Extents, outermost first; empty where nobody said.
    pub shape: Vec<u64>,
    /// The device that holds it.
    pub device: DeviceId,
    /// The maker's ordinal of that device.
    pub ordinal: u32,
    /// What holds the bytes.
    pub backend: Backend,
}

impl Spec {
    /// In what this is not what somebody counts on, as `has bytes 16, not 24`. 0 bytes,
    /// no dtype and an empty shape are any.
    pub fn differs(&self, bytes: u64, dtype: Option<Dtype>, shape: &[u64]) -> Option<String> {
        // What people said is told before what follows from it.
        if let (Some(there), Some(dtype)) = (self.dtype, dtype)
            && there != dtype
        {
            return Some(format!("has dtype {there}, not {dtype}"));
        }
        if !shape.is_empty() && !self.shape.is_empty() && shape != self.shape {
            let shape = &shape[..shape.len().min(MOST_EXTENTS)];
            return Some(format!("has shape {:?}, not {shape:?}", self.shape));
        }
        let other = bytes != 0 && bytes != self.bytes;
        other.then(|| format!("has bytes {}, not {bytes}", self.bytes))
    }
}

/// How long a name lives when nobody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persist {
    /// Not at all.
    No,
    /// Until it is deleted.
    Yes,
    /// Until this second of the Unix epoch.
    Until(u64),
}

impl Persist {
    /// For so many seconds, and less than one more, from this microsecond of the Unix
    /// epoch on; 0 is not at all, more than a clock can show is until it is deleted.
    pub fn for_seconds(seconds: u64, now_us: u64) -> Self {
        match now_us.div_ceil(1_000_000).checked_add(seconds) {
            _ if seconds == 0 => Self::No,
            Some(second) if seconds < u64::MAX => Self::Until(second),
            _ => Self::Yes,
        }
    }

    /// Does a name that is kept so live less long than one that is kept in the other way?
    pub fn is_shorter_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::Until(second), Self::Until(later)) => second < later,
            (Self::No, Self::Until(_)) | (Self::No | Self::Until(_), Self::Yes) => true,
            (Self::No | Self::Yes, _) | (Self::Until(_), Self::No) => false,
        }
    }
}

/// Where a name is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Its maker is not done: nobody else has it. Ends with its maker.
    Creating,
    /// Open to all with a right to it.
    Ready,
    /// Its bytes are final: opened for reading only from now on.
    Sealed,
    /// Deleted: hidden, and gone with its last holder.
    Dying,
}

/// A process, as the keeper knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number; as the process itself says it where it lives in a namespace
    /// that the keeper does not see.
    pub pid: u32,
    /// When it started, in clock ticks since boot; 0 where that is unknown.
    pub started: u64,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its command, at most 15 bytes.
    pub command: String,
}

/// One process that holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Who.
    pub process: Process,
    /// How often.
    pub count: u32,
}

/// All that is known of a name, or of an unnamed export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name; `None` for memory exported by CUDA IPC.
    pub name: Option<Name>,
    /// Which allocation.
    pub generation: Generation,
    /// What it holds.
    pub spec: Spec,
    /// Bytes of the physical handles.
    pub mapped: u64,
    /// First byte in the first of these.
    pub offset: u64,
    /// Where in its life.
    pub state: State,
    /// The newest version that was published; 0 for none.
    pub version: u64,
    /// What becomes of it when nobody holds it.
    pub persist: Persist,
    /// The driver's legacy handle, of [`Backend::CudaIpc`]; else empty.
    pub legacy: Vec<u8>,
    /// Who made it.
    pub maker: Process,
    /// Who holds it, at most the first 16 of them.
    pub holders: Vec<Holder>,
    /// The sum of all counts.
    pub references: u64,
    /// When it was made, and last changed: microseconds of the Unix epoch.
    pub created_us: u64,
    /// See `created_us`.
    pub changed_us: u64,
}

#[cfg(test)]
mod tests {
    use super::Persist;

    #[test]
    fn a_time_is_never_shorter_than_was_said() {
        let almost_2 = 1_999_999;
        let lives = |seconds| Persist::for_seconds(seconds, almost_2);
        assert_eq!((lives(0), lives(1)), (Persist::No, Persist::Until(3)));
        assert_eq!(Persist::for_seconds(1, 2_000_000), Persist::Until(3));
        assert_eq!(lives(u64::MAX - 2), Persist::Until(u64::MAX));
        assert_eq!(
            (lives(u64::MAX - 1), lives(u64::MAX)),
            (Persist::Yes, Persist::Yes)
        );
    }
}
