//! How memory comes to the keeper: a descriptor of each handle below it, so many at a
//! time that a process with few to spare can do it. Keeps no books.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use memcuda_core::driver::{self, Code, Driver};
use memcuda_core::pool::Export;
use memcuda_core::share::handle::Handle;
use memcuda_core::share::protocol::{Backend, DeviceId, Generation, MOST_PARTS, Request, Spec};

use super::line::TRIES;
use super::{Error, keeper};
use crate::engine::Engine;
use crate::engine::device::Device;

/// Why memory cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The keeper's part failed.
    Keeper(Error),
    /// The driver's part failed.
    Driver(Code),
    /// Its pages come and go.
    Changing,
    /// The device has no identity that other processes know.
    Nameless,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keeper(error) => error.fmt(f),
            Self::Driver(code) => write!(f, "the driver answers {code:?}"),
            Self::Changing => f.write_str("its pages come and go meanwhile"),
            Self::Nameless => f.write_str("the driver does not name the device"),
        }
    }
}

/// What was given to the keeper.
pub struct Sent {
    /// Under which number.
    pub generation: Generation,
    /// As programs pass it on.
    pub handle: [u8; 64],
    /// How many keepers there had been before, with the one that was asked then.
    pub keepers: u64,
}

/// Gives everything below an allocation to the keeper, under a new generation.
pub fn to_keeper(engine: &Engine, device: &Device, export: &Export) -> Result<Sent, Failure> {
    let id = DeviceId(device.uuid.ok_or(Failure::Nameless)?);
    crate::log_once!(
        Info,
        "device memory is exported by CUDA IPC: a process that opens it must be preloaded, too; \
         to others the driver answers INVALID_VALUE"
    );
    let odd = || Failure::Keeper(Error::Gone("the kernel gives no randomness".to_owned()));
    let send = || {
        let generation = Generation::random().ok_or_else(odd)?;
        let node = keeper::node(engine).map_err(Failure::Keeper)?;
        let keepers = keeper::keepers();
        under(engine, device, generation, export)?;
        let handle = Handle {
            node,
            generation,
            bytes: export.block.bytes,
            mapped: export.handles.iter().map(|(_, bytes)| bytes).sum(),
            offset: export.offset,
            device: Handle::digest(id),
        };
        Ok(Sent {
            generation,
            handle: handle.to_bytes(),
            keepers,
        })
    };
    let mut sent = send();
    for _ in 1..TRIES {
        // Where the keeper that had half of it is gone: again, as another one.
        sent = sent.or_else(|failure| match failure {
            Failure::Keeper(Error::Gone(_)) => send().map_err(|_| failure),
            failure => Err(failure),
        });
    }
    sent
}

/// Gives everything below an allocation to the keeper under this generation, so many
/// descriptors at a time that a process with few to spare can do it. One that is taken is refused.
pub fn under(
    engine: &Engine,
    device: &Device,
    generation: Generation,
    export: &Export,
) -> Result<(), Failure> {
    let id = DeviceId(device.uuid.ok_or(Failure::Nameless)?);
    let mut spec = Some(Spec {
        bytes: export.block.bytes,
        dtype: None,
        shape: Vec::new(),
        device: id,
        ordinal: device.ordinal,
        backend: Backend::Vmm,
    });
    let mut left = &export.handles[..];
    while !left.is_empty() {
        let (descriptors, refused) = exported(engine, left);
        let handles;
        (handles, left) = left.split_at(descriptors.len());
        let parts = handles.iter().map(|(_, bytes)| *bytes).collect();
        let request = match spec.take() {
            Some(spec) => Request::Export {
                generation,
                spec,
                offset: export.offset,
                parts,
                total: export.handles.len() as u32,
            },
            None => Request::ExportMore { generation, parts },
        };
        let sent = match refused.filter(|_| descriptors.is_empty()) {
            Some(code) => Err(Failure::Driver(code)),
            None => {
                let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                keeper::request(engine, request, &descriptors).map_err(Failure::Keeper)
            }
        };
        if let Err(failure) = sent {
            // What the keeper has of it goes.
            let _ = keeper::request(engine, Request::Withdraw { generation }, &[]);
            return Err(failure);
        }
    }
    Ok(())
}

/// Descriptors of the first of these handles: as many as a packet holds, or as the process has
/// room for, which the driver's refusal of the next one tells.
fn exported(engine: &Engine, handles: &[(driver::Handle, u64)]) -> (Vec<OwnedFd>, Option<Code>) {
    let mut descriptors = Vec::new();
    for (handle, _) in handles.iter().take(MOST_PARTS) {
        match engine.driver.export(*handle) {
            Ok(descriptor) => descriptors.push(descriptor),
            Err(code) => return (descriptors, Some(code)),
        }
    }
    (descriptors, None)
}
