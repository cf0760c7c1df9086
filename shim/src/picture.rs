//! The picture of this process, for who asks for it (`watch`) and for reports
//! (`oom`). Makes no driver call.

use std::os::fd::OwnedFd;

use memcuda_core::epoch::now_us;
use memcuda_core::picture::{self, Named, Picture, Process, Refused};
use memcuda_core::proc_stat;
use memcuda_core::share::protocol::DeviceId;

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::libraries::caller;
use crate::names::table;

/// Longest command line that is shown, in bytes.
const MOST_COMMAND: usize = 4096;

/// The pools as they are now. They stand still one after the other, each for as
/// long as its tables are copied.
pub fn take(engine: &Engine, refused: Option<Refused>) -> Picture {
    Picture {
        process: process(),
        taken_us: now_us(),
        refused,
        devices: engine
            .devices
            .iter()
            .filter_map(|d| device(engine, d))
            .collect(),
        names: table::all().iter().map(|mapped| named(mapped)).collect(),
        recording: recording(engine).unwrap_or_default(),
    }
}

/// The same as a sealed file.
pub fn sealed(engine: &Engine) -> std::io::Result<OwnedFd> {
    picture::ask::seal(&take(engine, None))
}

fn recording(engine: &Engine) -> Option<String> {
    let path = engine.recorder.as_ref()?.path();
    Some(path.to_string_lossy().into_owned())
}

fn device(engine: &Engine, device: &Device) -> Option<picture::Device> {
    Some(picture::Device {
        ordinal: device.ordinal,
        uuid: device
            .uuid
            .map_or_else(String::new, |uuid| DeviceId(uuid).to_string()),
        name: device.name.clone(),
        total_bytes: device.total,
        limit_bytes: engine.config.limit_of(device.ordinal),
        pool: pool(device)?,
    })
}

/// A device's pool, and the pages below torch's expandable segments beside it.
fn pool(device: &Device) -> Option<picture::Pool> {
    let mut pool = device.pool()?.picture();
    if let Some(pages) = device.pages() {
        pool.add(pages.picture());
        let peak = pool
            .counter("peak_physical_bytes")
            .max(device.sums.peak_physical());
        pool.counters.insert("peak_physical_bytes".to_owned(), peak);
    }
    Some(pool)
}

fn named(mapped: &table::Mapped) -> Named {
    Named {
        name: mapped.name().to_string(),
        device: mapped.device,
        address: mapped.address,
        bytes: mapped.entry.spec.bytes,
        write: mapped.spot.write,
        generation: mapped.entry.generation.to_string(),
    }
}

fn process() -> Process {
    Process {
        pid: std::process::id(),
        started_ticks: proc_stat::field("self", proc_stat::STARTED).unwrap_or(0),
        command: caller::command_line(MOST_COMMAND),
        library: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
