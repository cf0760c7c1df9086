//! The columns of the table of processes: what stands in them, and what a row is
//! sorted by.

use memcuda::units::show_bytes;

use crate::survey::{Rates, Row};

/// A column.
pub struct Column {
    /// Its heading, and its name for `--sort` in lower case.
    pub head: &'static str,
    /// Characters.
    pub width: u16,
    /// Does it stand left?
    pub left: bool,
    /// The narrowest window that has room for it.
    pub from_width: u16,
    /// What stands in it.
    pub text: fn(&Row) -> String,
    /// What a row is sorted by; of a text its place in the alphabet.
    value: fn(&Row) -> f64,
}

/// All of them. Those of a window of 80 columns fill it; a heading has room for
/// the sign of the order.
pub const COLUMNS: &[Column] = &[
    Column {
        head: "PID",
        width: 7,
        left: false,
        from_width: 0,
        text: |r| r.pid.to_string(),
        value: |r| f64::from(r.pid),
    },
    Column {
        head: "COMMAND",
        width: 11,
        left: true,
        from_width: 0,
        text: |r| r.command.clone(),
        value: |_| 0.0,
    },
    Column {
        head: "GPU",
        width: 4,
        left: false,
        from_width: 0,
        text: |r| r.counters.ordinal.to_string(),
        value: |r| r.counters.ordinal as f64,
    },
    Column {
        head: "LIVE",
        width: 10,
        left: false,
        from_width: 0,
        text: |r| show_bytes(r.counters.pool.live_bytes),
        value: |r| r.counters.pool.live_bytes as f64,
    },
    Column {
        head: "IDLE",
        width: 10,
        left: false,
        from_width: 0,
        text: |r| show_bytes(r.counters.pool.idle_bytes),
        value: |r| r.counters.pool.idle_bytes as f64,
    },
    Column {
        head: "PHYSICAL",
        width: 10,
        left: false,
        from_width: 0,
        text: |r| show_bytes(r.counters.pool.physical_bytes),
        value: |r| r.counters.pool.physical_bytes as f64,
    },
    Column {
        head: "PEAK",
        width: 10,
        left: false,
        from_width: 104,
        text: |r| show_bytes(r.counters.pool.peak_physical_bytes),
        value: |r| r.counters.pool.peak_physical_bytes as f64,
    },
    Column {
        head: "EFF",
        width: 4,
        left: false,
        from_width: 0,
        text: |r| percent(efficiency(r)),
        value: |r| efficiency(r).unwrap_or(-1.0),
    },
    Column {
        head: "REQ/S",
        width: 10,
        left: false,
        from_width: 104,
        text: |r| rate(r.rates.map(|it| it.requests_rate)),
        value: |r| r.rates.map_or(-1.0, |it| it.requests_rate),
    },
    Column {
        head: "HITS",
        width: 5,
        left: false,
        from_width: 0,
        text: |r| most(hits(r)),
        value: |r| hits(r).unwrap_or(-1.0),
    },
    Column {
        head: "ST/S",
        width: 5,
        left: false,
        from_width: 0,
        text: |r| rate(r.rates.map(|it| it.stitches_rate)),
        value: |r| r.rates.map_or(-1.0, |it| it.stitches_rate),
    },
    Column {
        head: "DRV",
        width: 5,
        left: false,
        from_width: 0,
        text: |r| percent(r.rates.map(|it| it.driver_time_rate)),
        value: |r| r.rates.map_or(-1.0, |it| it.driver_time_rate),
    },
];

/// The share of the physical bytes that is live.
fn efficiency(row: &Row) -> Option<f64> {
    let pool = &row.counters.pool;
    (pool.physical_bytes > 0).then(|| pool.live_bytes as f64 / pool.physical_bytes as f64)
}

fn hits(row: &Row) -> Option<f64> {
    row.rates.as_ref().and_then(Rates::hit_share)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |it| {
        format!("{:.0}%", (100.0 * it).min(9999.0))
    })
}

/// Of what is nearly all one figure more: all of it is something else.
fn most(share: Option<f64>) -> String {
    match share {
        Some(it) if (0.99..1.0).contains(&it) => format!("{:.1}%", (1000.0 * it).floor() / 10.0),
        other => percent(other),
    }
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(it) if it < 10.0 => format!("{it:.1}"),
        Some(it) if it < 10_000.0 => format!("{it:.0}"),
        Some(it) if it < 10_000_000.0 => format!("{:.0}k", it / 1e3),
        Some(it) => format!("{:.0}M", it / 1e6),
    }
}

/// The columns that such a window has room for.
pub fn shown(width: u16) -> impl Iterator<Item = (usize, &'static Column)> {
    let all = COLUMNS.iter().enumerate();
    all.filter(move |(_, column)| column.from_width <= width)
}

/// The column of this name.
pub fn by_name(name: &str) -> Option<usize> {
    COLUMNS
        .iter()
        .position(|it| it.head.eq_ignore_ascii_case(name))
}

/// Sorts rows by a column, the largest first unless it is told otherwise; what is
/// alike stays in the order of processes.
pub fn sort(rows: &mut [Row], by: usize, up: bool) {
    let column = &COLUMNS[by];
    rows.sort_by(|a, b| {
        let order = match column.head {
            "COMMAND" => a.command.cmp(&b.command).reverse(),
            _ => (column.value)(a).total_cmp(&(column.value)(b)),
        };
        let order = if up { order } else { order.reverse() };
        order
            .then(a.pid.cmp(&b.pid))
            .then(a.counters.ordinal.cmp(&b.counters.ordinal))
    });
}
