//! Multicast objects, of which there are none: only whether memory may be bound to one by its
//! address, as the manual says (not recorded on a GPU). Mapped memory may, cudaMalloc's not.

use crate::abi::{Answer, Code};
use crate::entry::api;
use crate::memory::holding;
use crate::state::Sim;

impl Sim {
    fn bind(&self, address: u64, bytes: u64) -> Answer {
        let (base, mapping) =
            holding(&self.mappings, address, |m| m.bytes).ok_or(Code::INVALID_VALUE)?;
        match bytes != 0 && address - base + bytes <= mapping.bytes {
            true => Ok(()),
            false => Err(Code::INVALID_VALUE),
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuMulticastBindAddr(_object: u64, _offset: usize, address: u64, bytes: usize, _flags: u64) {
        sim.bind(address, bytes as u64)
    }
    fn cuMulticastBindAddr_v2(
        _object: u64, device: i32, _offset: usize, address: u64, bytes: usize, _flags: u64,
    ) {
        sim.device(device)?;
        sim.bind(address, bytes as u64)
    }
}
