//! What the devices lack of virtual memory management, and the driver of answers about streams
//! of green contexts (`MEMCUDA_SIM_LACKS`): what attributes say by that, and what calls refuse.

use crate::abi::{Answer, Code, HANDLE_POSIX_FD, MemAllocationProp};

#[derive(Default, Clone, Copy)]
pub struct Lacks {
    vmm: bool,
    descriptors: bool,
    rdma: bool,
    /// Handles for network cards are made and mapped, and opened to no device, as under WSL2.
    rdma_access: bool,
    /// Nothing is kept for page tables: a device that is full is let into no other one's memory.
    tables: bool,
    /// `cuStreamGetCtx` refuses streams of green contexts, as before CUDA 13.
    green_streams: bool,
    /// The devices' memory is the host's, as of integrated ones.
    own_memory: bool,
}

impl Lacks {
    /// `vmm`, or some of `descriptors,rdma,rdma-access`; `tables`; `green-streams`;
    /// `own-memory`.
    pub fn parse(text: &str) -> Option<Lacks> {
        let mut lacks = Lacks::default();
        for word in text.split(',') {
            *match word.trim() {
                "vmm" => &mut lacks.vmm,
                "descriptors" => &mut lacks.descriptors,
                "rdma" => &mut lacks.rdma,
                "rdma-access" => &mut lacks.rdma_access,
                "tables" => &mut lacks.tables,
                "green-streams" => &mut lacks.green_streams,
                "own-memory" => &mut lacks.own_memory,
                _ => return None,
            } = true;
        }
        Some(lacks)
    }

    /// Is this attribute 0?
    pub fn attribute(self, attribute: u32) -> bool {
        match attribute {
            102 => self.vmm,
            103 => self.vmm || self.descriptors,
            110 => self.rdma(),
            _ => false,
        }
    }

    /// May no network card read and write the devices' memory?
    pub fn rdma(self) -> bool {
        self.vmm || self.rdma
    }

    /// Are the devices integrated ones?
    pub fn own_memory(self) -> bool {
        self.own_memory
    }

    /// Are there addresses to map memory at?
    pub fn reserve(self) -> Answer {
        refused_if(self.vmm, Code::NOT_SUPPORTED)
    }

    /// Is there such a handle?
    pub fn create(self, properties: &MemAllocationProp) -> Answer {
        let exported = properties.requested_handle_types & HANDLE_POSIX_FD != 0;
        let lacks =
            self.vmm || (self.descriptors && exported) || (self.rdma && is_rdma(properties));
        refused_if(lacks, Code::NOT_SUPPORTED)
    }

    /// Is what was made so opened to a device?
    pub fn open(self, properties: &MemAllocationProp) -> Answer {
        refused_if(self.rdma_access && is_rdma(properties), Code::UNKNOWN)
    }

    /// Is another device's memory opened to a device?
    pub fn let_in(self, is_full: bool) -> Answer {
        refused_if(self.tables && is_full, Code::OUT_OF_MEMORY)
    }

    /// Is the context told to which such a stream belongs?
    pub fn context_of_stream(self, is_green: bool) -> Answer {
        refused_if(self.green_streams && is_green, Code::NOT_SUPPORTED)
    }
}

fn is_rdma(properties: &MemAllocationProp) -> bool {
    properties.gpu_direct_rdma_capable != 0
}

fn refused_if(lacks: bool, code: Code) -> Answer {
    match lacks {
        true => Err(code),
        false => Ok(()),
    }
}
