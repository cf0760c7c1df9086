//! Address space: reservations, mappings of whole handles, access.

use std::os::fd::AsRawFd;

use crate::abi::{ACCESS_READ, ACCESS_READ_WRITE, Answer, Code, LOCATION_DEVICE, MemAccessDesc};
use crate::address::{map_file, reserve_address, unmap_file};
use crate::arena::GRANULE;
use crate::check::{misuse, span};
use crate::clock::cost;
use crate::entry::{api, must_put, put};
use crate::memory::holding;
use crate::settings::MAX_DEVICES;
use crate::state::Sim;
use crate::uses::Uses;

/// More than this the address space does not hold, as on the H200.
const MOST_RESERVED: u64 = 64 << 40;

pub struct Mapping {
    pub bytes: u64,
    pub handle: u64,
    /// `CUmemAccess_flags` of each device.
    pub access: [u8; MAX_DEVICES],
    /// The host sees the bytes at this address.
    seen: bool,
    pub uses: Uses,
}

impl Mapping {
    /// May this device do that there?
    pub fn grants(&self, device: usize, write: bool) -> bool {
        let access = u32::from(self.access[device]);
        access == ACCESS_READ_WRITE || (access == ACCESS_READ && !write)
    }
}

/// What the driver does at a hole in a range of mappings: access is granted up to the first,
/// and unmapped is all.
#[derive(Clone, Copy, PartialEq)]
enum Holes {
    End,
    Pass,
}

/// How many mappings the host may see at once: each can cost the kernel two
/// areas, and the program needs some for itself.
pub fn most_views() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let limit = limit.ok().and_then(|text| text.trim().parse().ok());
    limit.unwrap_or(65_530usize) / 2 - limit.unwrap_or(65_530) / 16
}

impl Sim {
    /// The whole mappings of a range that begins with one.
    fn whole_mappings(&self, base: u64, bytes: u64, holes: Holes) -> Result<Vec<u64>, Code> {
        let end = base.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let mut inside = self.mappings.range(base..end);
        let ends = inside.next_back().map(|(at, mapping)| at + mapping.bytes);
        if !self.mappings.contains_key(&base) || ends != Some(end) {
            return Err(Code::INVALID_VALUE);
        }
        let mut next = base;
        let mut found = Vec::new();
        for (at, mapping) in self.mappings.range(base..end) {
            if *at != next && holes == Holes::End {
                break;
            }
            next = at + mapping.bytes;
            found.push(*at);
        }
        Ok(found)
    }

    /// Makes the host's view of a mapping follow its access. The kernel grants
    /// a process only so many mappings; beyond them the host cannot look into
    /// our own memory, as on a GPU, but work still can (see `work`).
    fn apply_access(&mut self, base: u64) -> Answer {
        let mapping = &self.mappings[&base];
        let physical = &self.handles[&mapping.handle];
        let most = mapping.access.iter().copied().max().unwrap_or(0);
        if most == 0 {
            self.close_view(base);
            return Ok(());
        }
        if !mapping.seen && self.views >= self.most_views && physical.import.is_none() {
            return Ok(());
        }
        let fd = match &physical.import {
            Some(keep) => keep.arena.as_raw_fd(),
            None => self.devices[physical.device].arena.fd(),
        };
        let write = match u32::from(most) {
            ACCESS_READ_WRITE => libc::PROT_WRITE,
            _ => 0,
        };
        let protection = libc::PROT_READ | write;
        // SAFETY: the range is a mapping inside one of our reservations.
        unsafe { map_file(base, mapping.bytes, fd, physical.offset, protection)? };
        if let Some(mapping) = self.mappings.get_mut(&base) {
            self.views += usize::from(!mapping.seen);
            mapping.seen = true;
        }
        Ok(())
    }

    /// Turns the host's view of a mapping back into reserved address space.
    fn close_view(&mut self, base: u64) {
        if let Some(mapping) = self.mappings.get_mut(&base)
            && mapping.seen
        {
            mapping.seen = false;
            self.views -= 1;
            // SAFETY: the range is a mapping inside one of our reservations.
            unsafe { unmap_file(base, mapping.bytes) };
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuMemAddressReserve(out: *mut u64, bytes: usize, align: usize, _hint: u64, flags: u64) {
        let (bytes, align) = (bytes as u64, (align as u64).max(GRANULE));
        if out.is_null() || bytes == 0 || !bytes.is_multiple_of(GRANULE) || flags != 0
            || !align.is_power_of_two()
        {
            return Err(Code::INVALID_VALUE);
        }
        sim.lacks.reserve()?;
        sim.clock.charge(cost::reserve(bytes));
        if bytes > MOST_RESERVED {
            return Err(Code::OUT_OF_MEMORY);
        }
        let base = reserve_address(bytes, align)?;
        sim.reservations.insert(base, bytes);
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, base) }
    }
    fn cuMemAddressFree(base: u64, bytes: usize) {
        if sim.reservations.get(&base) != Some(&(bytes as u64)) {
            return Err(Code::INVALID_VALUE);
        }
        let inside = sim.mappings.range(base..base + bytes as u64).next();
        if let Some((at, mapping)) = inside {
            misuse(&format!(
                "cuMemAddressFree of {} while {} is still mapped",
                span(base, bytes as u64),
                span(*at, mapping.bytes),
            ));
        }
        sim.clock.charge(cost::free_reservation(bytes as u64));
        sim.reservations.remove(&base);
        // SAFETY: the reservation is ours, whole, and holds no mapping.
        unsafe { libc::munmap(base as *mut _, bytes) };
        Ok(())
    }
    fn cuMemMap(base: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        let bytes = bytes as u64;
        let physical = sim.handles.get(&handle).filter(|h| h.is_known());
        let physical = physical.ok_or(Code::INVALID_VALUE)?;
        if flags != 0 || !base.is_multiple_of(GRANULE) || bytes == 0 || bytes > physical.bytes {
            return Err(Code::INVALID_VALUE);
        }
        if offset != 0 || bytes != physical.bytes {
            return Err(Code::NOT_SUPPORTED);
        }
        let inside = holding(&sim.reservations, base, |bytes| *bytes)
            .is_some_and(|(start, length)| base + bytes <= start + length);
        if !inside {
            return Err(Code::INVALID_VALUE);
        }
        let taken = sim.mappings.range(..base + bytes).next_back();
        if taken.is_some_and(|(at, mapping)| at + mapping.bytes > base) {
            return Err(Code::INVALID_VALUE);
        }
        sim.clock.charge(cost::map(bytes));
        sim.mappings.insert(base, Mapping { bytes, handle, access: [0; MAX_DEVICES], seen: false, uses: Uses::default() });
        if let Some(physical) = sim.handles.get_mut(&handle) {
            if physical.mappings == 0 {
                (physical.first, physical.torn) = (base, false);
            }
            physical.mappings += 1;
        }
        Ok(())
    }
    fn cuMemSetAccess(base: u64, bytes: usize, descriptors: *const MemAccessDesc, count: usize) {
        if descriptors.is_null() || count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller passes `count` whole structures.
        let descriptors = unsafe { std::slice::from_raw_parts(descriptors, count) };
        for descriptor in descriptors {
            if descriptor.location.kind != LOCATION_DEVICE {
                return Err(Code::NOT_SUPPORTED);
            }
            if !matches!(descriptor.flags, 0 | 1 | 3) {
                return Err(Code::INVALID_VALUE);
            }
            sim.device(descriptor.location.id)?;
        }
        for at in sim.whole_mappings(base, bytes as u64, Holes::End)? {
            let mapping = &sim.mappings[&at];
            let physical = &sim.handles[&mapping.handle];
            sim.lacks.open(&physical.properties)?;
            for descriptor in descriptors.iter().filter(|descriptor| descriptor.flags != 0) {
                let reader = descriptor.location.id as usize;
                if reader != physical.device && physical.torn {
                    return Err(Code::INVALID_VALUE);
                }
                let is_full = || sim.ledger.used(reader) == sim.ledger.total();
                sim.lacks.let_in(reader != physical.device && is_full())?;
            }
            let before = mapping.access;
            let mut access = before;
            for descriptor in descriptors {
                access[descriptor.location.id as usize] = descriptor.flags as u8;
            }
            if before.iter().zip(&access).any(|(old, new)| new < old) {
                sim.check_unused_at(at, sim.mappings[&at].bytes, "takes access from");
            }
            let cost = sim.opening(cost::set_access(sim.mappings[&at].bytes));
            sim.clock.charge(cost);
            if let Some(mapping) = sim.mappings.get_mut(&at) {
                mapping.access = access;
            }
            sim.apply_access(at)?;
        }
        Ok(())
    }
    fn cuMemGetAccess(out: *mut u64, location: *const crate::abi::MemLocation, address: u64) {
        if location.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let device = sim.device(unsafe { location.read() }.id)?;
        // Low addresses nobody has.
        if address >> 16 != 0 {
            // SAFETY: the caller's pointer.
            unsafe { put(out, 0) };
        }
        let mapping = holding(&sim.mappings, address, |m| m.bytes);
        let access = match (mapping, sim.allocation_at(address)) {
            (Some((_, mapping)), _) => mapping.access[device].into(),
            // Of memory that nobody mapped it is asked in vain, and succeeds.
            (None, Some(_)) => 0,
            (None, None) => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, access) }
    }
    fn cuMemUnmap(base: u64, bytes: usize) {
        let whole = sim.whole_mappings(base, bytes as u64, Holes::Pass)?;
        sim.check_unclaimed(base, bytes as u64, "unmaps");
        for at in whole {
            let bytes = sim.mappings[&at].bytes;
            sim.check_unused_at(at, bytes, "unmaps");
            sim.clock.charge(cost::unmap(bytes));
            sim.close_view(at);
            let Some(mapping) = sim.mappings.remove(&at) else { continue };
            if let Some(physical) = sim.handles.get_mut(&mapping.handle) {
                physical.mappings -= 1;
                physical.torn |= at == physical.first;
            }
            sim.collect(mapping.handle);
        }
        Ok(())
    }
}
