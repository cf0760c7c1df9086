//! The `MEMCUDA_SIM_*` variables. A bad value is one line on standard error
//! and `cuInit` fails: a test must not run on other settings than it asked for.

use crate::clock::Mode;
use crate::fault::Faults;
use crate::lacks::Lacks;

/// Most devices of one simulation.
pub const MAX_DEVICES: usize = 8;

pub struct Settings {
    /// `MEMCUDA_SIM_DEVICES`, 1 to 8.
    pub devices: usize,
    /// `MEMCUDA_SIM_MEMORY`: bytes of each device.
    pub memory: u64,
    /// `MEMCUDA_SIM_CLOCK`.
    pub clock: Mode,
    /// `MEMCUDA_SIM_FAIL`.
    pub faults: Faults,
    /// `MEMCUDA_SIM_LACKS`.
    pub lacks: Lacks,
    /// `MEMCUDA_SIM_SHARED`: the accounting file that several processes share.
    pub shared: Option<String>,
    /// `MEMCUDA_SIM_FABRIC`: may handles be for a fabric?
    pub fabric: bool,
}

impl Settings {
    /// Reads the environment; the error is the line to print.
    pub fn read() -> Result<Settings, String> {
        Ok(Settings {
            devices: read("MEMCUDA_SIM_DEVICES", "1 to 8", 1, |text| {
                text.parse().ok().filter(|n| (1..=MAX_DEVICES).contains(n))
            })?,
            memory: read(
                "MEMCUDA_SIM_MEMORY",
                "a size of 2MiB to 1TiB, such as 16GiB",
                16 << 30,
                |text| size(text).filter(|n| (2 << 20..=1 << 40).contains(n)),
            )?,
            clock: read(
                "MEMCUDA_SIM_CLOCK",
                "virtual, real or off",
                Mode::Virtual,
                Mode::parse,
            )?,
            faults: read(
                "MEMCUDA_SIM_FAIL",
                "NAME@N=CODE or NAME%N=CODE, comma separated, NAME a driver call or *",
                Faults::default(),
                Faults::parse,
            )?,
            lacks: read(
                "MEMCUDA_SIM_LACKS",
                "vmm, descriptors, rdma, rdma-access, tables, green-streams, own-memory, or several, comma separated",
                Lacks::default(),
                Lacks::parse,
            )?,
            shared: std::env::var("MEMCUDA_SIM_SHARED")
                .ok()
                .filter(|path| !path.is_empty()),
            fabric: read("MEMCUDA_SIM_FABRIC", "0 or 1", false, |text| {
                ["0", "1"]
                    .iter()
                    .position(|known| *known == text)
                    .map(|n| n == 1)
            })?,
        })
    }
}

fn read<T>(
    name: &str,
    accepted: &str,
    default: T,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, String> {
    match std::env::var_os(name) {
        None => Ok(default),
        Some(value) if value.is_empty() => Ok(default),
        Some(value) => value.to_str().and_then(parse).ok_or_else(|| {
            format!(
                "memcuda-sim: {name}={} is not valid; accepted: {accepted}",
                value.display()
            )
        }),
    }
}

/// SIZE: a number and a unit, or bytes: `16GiB`, `1.5GB`.
fn size(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 9] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("KB", 1_000),
        ("", 1),
    ];
    let split = |(unit, scale): &(&str, u64)| Some((text.trim().strip_suffix(unit)?, *scale));
    let (number, scale) = UNITS.iter().find_map(split)?;
    if let Ok(whole) = number.trim().parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let value = number.trim().parse::<f64>().ok()? * scale as f64;
    (0.0..1e18).contains(&value).then_some(value as u64)
}
