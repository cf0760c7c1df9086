//! A thread that is cancelled ends at the program's own calls, not where the library's own
//! thread is told that a recording has to grow.

use crate::{of, read, recorded, support};

/// A forced unwinding through this library would end the process.
#[test]
fn a_thread_that_is_cancelled_records_on() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    support::said(&mut recorded(&trace, &["cancelled", "70000"]));
    let (lines, _) = read(&trace);
    assert!(of(&lines, "free") > 65_536, "{}", lines.len());
}
