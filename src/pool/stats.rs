//! The pool's exact counters. Bytes unless the name says otherwise.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A snapshot of one device's pool.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The counters' names, in the order of [`Stats::values`].
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// All counters, in the order of [`Stats::NAMES`].
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name),*]
            }

            /// All counters by name.
            pub fn by_name(&self) -> std::collections::BTreeMap<String, u64> {
                let all = Self::NAMES.iter().zip(self.values());
                all.map(|(name, value)| ((*name).to_owned(), value)).collect()
            }

            /// The snapshot with these counters, in the order of [`Stats::NAMES`].
            pub fn from_values(values: [u64; Self::NAMES.len()]) -> Self {
                let [$($name),*] = values;
                Self { $($name),* }
            }
        }
    };
}

counters! {
    /// Asked for and not freed.
    live_bytes,
    /// Lent for them: live and rounding.
    granted_bytes,
    /// Freed, but uses may still be running (as of the last slow path).
    pending_bytes,
    /// Physical, not lent.
    idle_bytes,
    /// Sum of all handles held from the driver, those of other processes' memory
    /// included.
    physical_bytes,
    /// Physical, and not the pool's own: named, or opened from another process.
    shared_bytes,
    /// Freed while other processes have them open.
    parked_bytes,
    /// Highest `live_bytes`.
    peak_live_bytes,
    /// Highest `physical_bytes`.
    peak_physical_bytes,
    /// Allocations asked for (a number).
    requests,
    /// Served with no driver call but event operations (a number).
    hits,
    /// Served by a search for a window (a number).
    searches,
    /// Address ranges stitched (a number).
    stitches,
    /// Times that new physical memory was taken (a number).
    growths,
    /// Handles mapped in all, aliases included (a number).
    handles_mapped,
    /// Allocations freed (a number).
    frees,
    /// Orderings behind another stream (a number).
    waits,
    /// Orderings behind the same stream for another address (a number).
    edges,
    /// Waits on the host (a number).
    host_waits,
    /// Allocations that failed for lack of memory (a number).
    out_of_memory,
    /// Nanoseconds spent in driver calls other than event operations.
    driver_ns,
    /// Handles held (a number).
    chunks,
    /// Requests and frees that went beyond the quick path and took longer than
    /// 1 ms there (a number).
    stalls,
    /// Nanoseconds that these took, waits for other threads, for work on the
    /// device, for other processes, and for torch to give memory back included.
    stall_ns,
}
