//! One allocator object is watched in a process, so one test walks through it.

use std::ffi::{CStr, CString, c_int, c_long, c_void};

use super::*;
use crate::torch::fixture::Fixture;
use crate::torch::layout::verify;
use crate::torch::library;

struct Opened(*mut c_void);

impl Opened {
    fn open(fixture: &Fixture) -> Self {
        let path = CString::new(fixture.path().to_str().unwrap()).unwrap();
        // SAFETY: a library without dependencies beyond the C++ runtime.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self(handle)
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        let found = crate::libraries::resolve::symbol(self.0, name);
        assert!(!found.is_null(), "{name:?}");
        found
    }

    fn drive(&self, what: c_int) -> c_long {
        // SAFETY: the fixture's function of this signature.
        let drive = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_long>(self.find(c"drive"))
        };
        drive(what)
    }

    fn seen(&self, index: usize) -> c_long {
        // SAFETY: the fixture's array of eight.
        unsafe { *self.find(c"seen").cast::<c_long>().add(index) }
    }
}

#[test]
fn scopes_are_counted_and_everything_reaches_the_real_methods() {
    let fixture = Fixture::build("scopes", "");
    let opened = Opened::open(&fixture);
    let library = library::find(|l| l.path == fixture.path()).unwrap();
    let layout = Box::leak(Box::new(verify(&library).unwrap()));
    assert!(!watching() && may_be_open(3), "unknown counts as open");
    assert!(install(layout));
    assert!(watching() && !may_be_open(3));

    assert_eq!(opened.drive(1), 0);
    assert_eq!(
        [2, 3, 4, 5].map(|i| opened.seen(i)),
        [3, 5, 6, 1],
        "device, pool id and function object arrived"
    );
    assert!(may_be_open(3) && !may_be_open(2));
    assert_eq!(opened.drive(2), 0);
    assert_eq!(opened.seen(6), 3006);
    assert!(!may_be_open(3));

    opened.drive(1);
    assert_eq!(opened.drive(3), -99, "an exception passes through");
    assert!(may_be_open(3), "a scope that failed to close stays open");
    opened.drive(2);

    assert_eq!(opened.drive(0), 42, "the returned pointer passes through");
    assert_eq!(opened.seen(0), 8);
    assert_eq!(opened.drive(5), -13);
    assert!(!stream_unknown(), "an exception ends the call as well");

    opened.drive(4);
    assert_eq!((opened.seen(1), given_up()), (1, false));
    opened.drive(8);
    assert_eq!(
        (opened.seen(7), given_up()),
        (2, false),
        "the end of a pool"
    );
    opened.drive(7);
    assert_eq!((opened.seen(1), given_up()), (2, true));
    opened.drive(6);
    assert_eq!(opened.seen(7), 1);
}

/// Before 2.11 it is called for those that do alone.
#[test]
fn a_release_says_of_pools_whether_they_stand_in_or_that_they_do() {
    for (name, flags, says) in [("says", "", true), ("not", "-DSTANDS_IN", false)] {
        let fixture = Fixture::build(&format!("on-oom-{name}"), flags);
        let _opened = Opened::open(&fixture);
        let library = library::find(|l| l.path == fixture.path()).unwrap();
        assert_eq!(verify(&library).unwrap().says_on_oom, says);
    }
}

#[test]
fn a_library_that_is_not_what_it_was_is_refused() {
    let stripped = Fixture::build("refused-stripped", "-s");
    let _opened = Opened::open(&stripped);
    let library = library::find(|l| l.path == stripped.path()).unwrap();
    assert!(verify(&library).is_err());

    let changed = Fixture::build("refused-changed", "");
    let _opened = Opened::open(&changed);
    let library = library::find(|l| l.path == changed.path()).unwrap();
    assert!(verify(&library).is_ok());
    // The file is replaced under the running program, as an upgrade does.
    let other = Fixture::build("refused-other", "-O0 -falign-functions=4096");
    std::fs::remove_file(changed.path()).unwrap();
    std::fs::copy(other.path(), changed.path()).unwrap();
    assert!(verify(&library).is_err());
}
