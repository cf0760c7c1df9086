//! The columns of the table of processes: what stands in them, and what a row is
//! sorted by.

use std::cmp::Ordering;

use memcuda::units::show_bytes;

use crate::survey::Row;

/// What stands in a column, and what its rows are sorted by.
enum Of {
    /// The short name of the process.
    Command,
    Number(fn(&Row) -> u64),
    Bytes(fn(&Row) -> u64),
    /// How often in a second.
    Rate(fn(&Row) -> Option<f64>),
    Share(fn(&Row) -> Option<f64>),
    /// A share of which what is nearly all has one figure more: all of it is something
    /// else.
    Most(fn(&Row) -> Option<f64>),
}

use Of::{Bytes, Command, Most, Number, Rate, Share};

/// A column.
pub struct Column {
    /// Its heading, and its name for `--sort` in lower case.
    pub head: &'static str,
    /// Characters.
    pub width: u16,
    /// The narrowest window that has room for it.
    from_width: u16,
    of: Of,
}

/// All of them. Those of a window of 80 columns fill it; a heading has room for
/// the sign of the order.
pub const COLUMNS: &[Column] = &[
    Column::new("PID", 7, Number(|r| r.pid.into())),
    Column::new("COMMAND", 11, Command),
    Column::new("GPU", 4, Number(|r| r.counters.ordinal)),
    Column::new("LIVE", 10, Bytes(|r| r.counters.pool.live_bytes)),
    Column::new("IDLE", 10, Bytes(|r| r.counters.pool.idle_bytes)),
    Column::new("SHARED", 10, Bytes(|r| r.counters.pool.shared_bytes)).from(115),
    Column::new("PHYSICAL", 10, Bytes(|r| r.counters.pool.physical_bytes)),
    Column::new("PEAK", 10, Bytes(|r| r.counters.pool.peak_physical_bytes)).from(104),
    Column::new("EFF", 4, Share(efficiency)),
    Column::new("REQ/S", 10, Rate(|r| Some(r.rates?.requests_rate))).from(104),
    Column::new("HITS", 5, Most(|r| r.rates?.hit_share())),
    Column::new("ST/S", 5, Rate(|r| Some(r.rates?.stitches_rate))),
    Column::new("DRV", 5, Share(|r| Some(r.rates?.driver_time_rate))),
];

impl Column {
    const fn new(head: &'static str, width: u16, of: Of) -> Self {
        Self {
            head,
            width,
            from_width: 0,
            of,
        }
    }

    const fn from(self, from_width: u16) -> Self {
        Self { from_width, ..self }
    }

    /// Is it of names, which stand left?
    pub fn is_left(&self) -> bool {
        matches!(self.of, Command)
    }

    /// What stands in it.
    pub fn text(&self, row: &Row) -> String {
        match self.of {
            Command => row.command.clone(),
            Number(of) => of(row).to_string(),
            Bytes(of) => show_bytes(of(row)),
            Rate(of) => of(row).map_or("-".to_owned(), rate),
            Share(of) => of(row).map_or("-".to_owned(), percent),
            Most(of) => of(row).map_or("-".to_owned(), most),
        }
    }

    /// The order of two rows, the smaller before the larger; what is not known comes first.
    fn order(&self, a: &Row, b: &Row) -> Ordering {
        match self.of {
            Command => a.command.cmp(&b.command).reverse(),
            Number(of) | Bytes(of) => of(a).cmp(&of(b)),
            Rate(of) | Share(of) | Most(of) => {
                let known = |row| of(row).unwrap_or(-1.0);
                known(a).total_cmp(&known(b))
            }
        }
    }
}

/// The share of the pool's own physical bytes that is live. What is shared is never live.
fn efficiency(row: &Row) -> Option<f64> {
    let pool = &row.counters.pool;
    let own = pool.physical_bytes.saturating_sub(pool.shared_bytes);
    (own > 0).then(|| pool.live_bytes as f64 / own as f64)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", (100.0 * share).min(9999.0))
}

fn most(share: f64) -> String {
    match (0.99..1.0).contains(&share) {
        true => format!("{:.1}%", (1000.0 * share).floor() / 10.0),
        false => percent(share),
    }
}

fn rate(rate: f64) -> String {
    match rate {
        it if it < 10.0 => format!("{it:.1}"),
        it if it < 10_000.0 => format!("{it:.0}"),
        it if it < 10_000_000.0 => format!("{:.0}k", it / 1e3),
        it => format!("{:.0}M", it / 1e6),
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
    rows.sort_by(|a, b| {
        let order = COLUMNS[by].order(a, b);
        let order = if up { order } else { order.reverse() };
        order
            .then(a.pid.cmp(&b.pid))
            .then(a.counters.ordinal.cmp(&b.counters.ordinal))
    });
}
