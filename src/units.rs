//! Bytes: alignment, the SIZE notation of the configuration, and a short form
//! for people. Never touches memory.

/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;

/// Bytes of the smallest physical handle, of which the length of each is a multiple.
pub const HANDLE: u64 = 2 * MIB;

/// The next multiple of `align` (a power of two) at or above `value`, or
/// `None` where that does not fit in 64 bits.
pub fn align_up(value: u64, align: u64) -> Option<u64> {
    debug_assert!(align.is_power_of_two());
    Some(value.checked_add(align - 1)? & !(align - 1))
}

/// Parses SIZE: a decimal number and one of `B KB MB GB TB KiB MiB GiB TiB`
/// (bytes where there is none). `1.5GB` is 1,500,000,000 bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim() {
        "" | "B" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        "TiB" => GIB << 10,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let value = number.parse::<f64>().ok()? * scale as f64;
    (value.is_finite() && value <= u64::MAX as f64 / 2.0).then_some(value as u64)
}

/// What an option accepts, for people; where it names SIZE, with what that is.
pub fn accepted(accepts: &str) -> String {
    let size = if accepts.contains("SIZE") {
        "; SIZE is 512MiB, 24GiB, 1.5GB or bytes"
    } else {
        ""
    };
    format!("accepted: {accepts}{size}")
}

/// Bytes for people: `12.3 GiB`, `512 B`.
pub fn show_bytes(bytes: u64) -> String {
    for (scale, unit) in [(GIB << 10, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if bytes >= scale {
            return format!("{:.1} {unit}", bytes as f64 / scale as f64);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_documented() {
        assert_eq!(parse_size("512MiB"), Some(512 * MIB));
        assert_eq!(parse_size("24GiB"), Some(24 * GIB));
        assert_eq!(parse_size("1.5GB"), Some(1_500_000_000));
        assert_eq!(parse_size("4096"), Some(4096));
        for bad in ["", "GiB", "12 parsecs", "1.2.3MB", "-1", "99999999999TiB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn alignment_rounds_up_and_reports_overflow() {
        assert_eq!(align_up(1, 512), Some(512));
        assert_eq!(align_up(1024, 512), Some(1024));
        assert_eq!(align_up(u64::MAX, 512), None);
    }
}
