//! Devices and what is asked of them.

use std::ffi::c_char;

use crate::abi::{Code, Uuid};
use crate::entry::{api, must_put};
use crate::state::Sim;

const NAME: &[u8] = b"memcuda simulated GPU\0";

/// Attributes with a value other than 0: those of an H200 that programs ask for.
const ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024), // threads per block
    (2, 1024), // block dimensions
    (3, 1024),
    (4, 64),
    (5, i32::MAX), // grid dimensions
    (6, 65535),
    (7, 65535),
    (8, 49152),       // shared memory per block
    (9, 65536),       // constant memory
    (10, 32),         // warp
    (12, 65536),      // registers per block
    (13, 1_980_000),  // clock, kHz
    (14, 512),        // texture alignment
    (16, 132),        // multiprocessors
    (19, 1),          // host memory can be mapped
    (31, 1),          // concurrent kernels
    (36, 3_201_000),  // memory clock, kHz
    (37, 6144),       // memory bus, bits
    (38, 62_914_560), // L2 cache
    (39, 2048),       // threads per multiprocessor
    (40, 3),          // copy engines
    (41, 1),          // unified addressing
    (75, 9),          // compute capability
    (76, 0),
    (78, 1),       // stream priorities
    (81, 233_472), // shared memory per multiprocessor
    (82, 65536),   // registers per multiprocessor
    (83, 1),       // managed memory
    (89, 1),       // concurrent managed access
    (91, 1),       // host memory at its own address
    (97, 232_448), // shared memory per block, opt-in
    (102, 1),      // virtual memory management
    (103, 1),      // POSIX file descriptors
    (110, 1),      // GPUDirect RDMA with virtual memory management
    (115, 1),      // memory pools
    (116, 1),      // GPUDirect RDMA
    (119, 1),      // memory pool handle types
];

api! { plain EXPORTS |sim|
    fn cuDeviceGet(out: *mut i32, ordinal: i32) {
        sim.device(ordinal)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, ordinal) }
    }
    fn cuDeviceGetCount(out: *mut i32) {
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.devices.len() as i32) }
    }
    fn cuDeviceGetName(out: *mut c_char, length: i32, device: i32) {
        sim.device(device)?;
        if out.is_null() || length <= 0 {
            return Err(Code::INVALID_VALUE);
        }
        let copied = NAME.len().min(length as usize);
        // SAFETY: the caller's buffer holds `length` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(NAME.as_ptr(), out.cast(), copied);
            out.add(copied - 1).write(0);
        }
        Ok(())
    }
    fn cuDeviceTotalMem_v2(out: *mut usize, device: i32) {
        sim.device(device)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.ledger.total() as usize) }
    }
    fn cuDeviceGetAttribute(out: *mut i32, attribute: u32, device: i32) {
        let device = sim.device(device)?;
        let value = match attribute {
            18 => i32::from(sim.lacks.own_memory()), // integrated
            50 => device as i32, // PCI device number
            128 => i32::from(sim.fabric),
            _ if sim.lacks.attribute(attribute) => 0,
            _ => ATTRIBUTES.iter().find(|(a, _)| *a == attribute).map_or(0, |(_, v)| *v),
        };
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, value) }
    }
    fn cuDeviceGetUuid(out: *mut Uuid, device: i32) {
        let device = sim.device(device)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.uuid(device)) }
    }
    fn cuDeviceGetUuid_v2(out: *mut Uuid, device: i32) {
        let device = sim.device(device)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, sim.uuid(device)) }
    }
    fn cuDeviceGetPCIBusId(out: *mut c_char, length: i32, device: i32) {
        let text = format!("0000:00:{:02X}.0\0", sim.device(device)?);
        if out.is_null() || (length as usize) < text.len() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller's buffer is long enough.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len()) };
        Ok(())
    }
    fn cuDeviceCanAccessPeer(out: *mut i32, device: i32, peer: i32) {
        let different = sim.device(device)? != sim.device(peer)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, i32::from(different)) }
    }
}

impl Sim {
    /// The same in every process that shares the device, different for every
    /// other one.
    pub fn uuid(&self, device: usize) -> Uuid {
        let mut bytes = *b"memcuda---------";
        bytes[7..15].copy_from_slice(&self.ledger.identity().to_be_bytes());
        bytes[15] = device as u8;
        Uuid(bytes)
    }
}
