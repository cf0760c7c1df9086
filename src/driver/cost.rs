//! What the calls of the driver cost on an H200, in nanoseconds: the medians of
//! one, straight lines between the sizes that were measured. Calls nothing.

use crate::units::{GIB, MIB};

const SIZES: [u64; 5] = [2 * MIB, 16 * MIB, 128 * MIB, GIB, 8 * GIB];

fn at(bytes: u64, costs: [u64; 5]) -> u64 {
    let above = SIZES.partition_point(|size| *size < bytes);
    match above {
        0 => costs[0],
        5 => costs[4] * (bytes / MIB) / (SIZES[4] / MIB),
        i => {
            let (x0, x1) = (SIZES[i - 1] as f64, SIZES[i] as f64);
            let (y0, y1) = (costs[i - 1] as f64, costs[i] as f64);
            (y0 + (y1 - y0) * (bytes as f64 - x0) / (x1 - x0)) as u64
        }
    }
}

/// `cuMemCreate`.
pub fn create(bytes: u64) -> u64 {
    at(bytes, [10_500, 9_500, 11_500, 60_000, 1_500_000])
}
/// `cuMemRelease`.
pub fn release(bytes: u64) -> u64 {
    at(bytes, [11_000, 19_000, 62_000, 400_000, 4_200_000])
}
/// `cuMemMap`.
pub fn map(_bytes: u64) -> u64 {
    1_000
}
/// `cuMemSetAccess`, of one handle in the range.
pub fn set_access(bytes: u64) -> u64 {
    at(bytes, [28_000, 28_000, 36_000, 64_000, 320_000])
}
/// `cuMemUnmap`, of one handle in the range.
pub fn unmap(bytes: u64) -> u64 {
    at(bytes, [18_000, 18_000, 22_000, 31_000, 100_000])
}
/// `cuMemAddressReserve`.
pub const RESERVE: u64 = 3_000;
/// `cuMemAddressFree`.
pub const FREE_RESERVATION: u64 = 2_000;
/// `cuMemExportToShareableHandle`, after the first.
pub const EXPORT: u64 = 12_000;
/// `cuMemImportFromShareableHandle`.
pub const IMPORT: u64 = 47_000;
