//! How a name is asked for, and what is to hold its bytes: said by rules, by
//! programs and to the keeper.

use serde::{Deserialize, Serialize};

/// How a name is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// A new one: an error where there is one.
    Create,
    /// One that is there: an error where there is none.
    Attach,
    /// Whichever it is.
    CreateOrAttach,
}

/// What holds the bytes of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// One physical handle; its descriptor is the keeper's, so the memory
    /// outlives its maker.
    Vmm,
    /// The driver's own allocation and legacy handle: programs without the
    /// library can open it; it ends with its maker.
    CudaIpc,
}

impl Backend {
    /// What it is called in rules, listings and Redis.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vmm => "vmm",
            Self::CudaIpc => "cuda_ipc",
        }
    }
}
