//! Results of the interface: their numbers, which are stable, and this thread's
//! last failure.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int};
use std::fmt::Write;

use memcuda_core::driver::{Code, cancel};
use memcuda_core::share::protocol;

use super::place;
use crate::engine::Engine;
use crate::engine::boundary;
use crate::names::Failure;
use crate::share::{early, keeper};

/// `MEMCUDA_OK`.
pub const OK: c_int = 0;
/// `MEMCUDA_CUDA`.
pub const CUDA_FAILED: c_int = 12;
const INTERNAL: c_int = 13;
/// Results by their numbers.
const NAMES: [&std::ffi::CStr; 15] = [
    c"ok",
    c"invalid",
    c"not-found",
    c"exists",
    c"mismatch",
    c"in-progress",
    c"denied",
    c"quota",
    c"sealed",
    c"protocol",
    c"unavailable",
    c"timeout",
    c"cuda",
    c"internal",
    c"absent",
];

/// The number of a failure.
fn number(failure: &Failure) -> c_int {
    match failure {
        Failure::Refused(code, _) => match code {
            protocol::Code::Invalid => 1,
            protocol::Code::NotFound => 2,
            protocol::Code::Exists => 3,
            protocol::Code::Mismatch => 4,
            protocol::Code::InProgress => 5,
            protocol::Code::Denied => 6,
            protocol::Code::Quota => 7,
            protocol::Code::Sealed => 8,
            protocol::Code::Version => 9,
            protocol::Code::Unavailable => 10,
        },
        Failure::Invalid(_) => 1,
        Failure::Unavailable(_) => 10,
        Failure::Timeout(_) => 11,
        Failure::Driver(..) | Failure::Unseen(..) => CUDA_FAILED,
    }
}

/// Longest message, with its zero byte.
const MOST: usize = 512;

thread_local! {
    // Without destructors: a program may call from its threads' last moments.
    static MESSAGE: RefCell<[u8; MOST]> = const { RefCell::new([0; MOST]) };
    static CUDA: Cell<u32> = const { Cell::new(0) };
}

struct Text<'a>(&'a mut [u8; MOST], usize);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            let c = if c.is_control() { ' ' } else { c };
            let mut bytes = [0; 4];
            let bytes = c.encode_utf8(&mut bytes).as_bytes();
            if self.1 + bytes.len() >= MOST {
                break;
            }
            self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
            self.1 += bytes.len();
        }
        self.0[self.1] = 0;
        Ok(())
    }
}

fn note(message: std::fmt::Arguments<'_>) {
    MESSAGE.with(|kept| {
        let _ = Text(&mut kept.borrow_mut(), 0).write_fmt(message);
    });
}

/// Runs a function of the interface in a process whose engine runs.
pub fn call(name: &str, body: impl FnOnce(&'static Engine) -> Result<(), Failure>) -> c_int {
    let _held = cancel::hold();
    let run = || boundary::inside(|| place::engine().and_then(body));
    let answer = boundary::or_else(name, || Some(run()), || None);
    match answer {
        Some(Ok(())) => OK,
        Some(Err(failure)) => {
            if let Failure::Driver(Code(code), _) | Failure::Unseen(Code(code), _) = failure {
                CUDA.set(code);
            }
            note(format_args!("{name}: {failure}"));
            number(&failure)
        }
        None => {
            note(format_args!("{name}: an internal error; the log has more"));
            INTERNAL
        }
    }
}

/// What the keeper answered.
pub fn ask(engine: &Engine, request: protocol::Request) -> Result<protocol::Reply, Failure> {
    let (reply, _) = keeper::request(engine, request, &[])?;
    Ok(reply)
}

/// `memcuda_version`.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_version() -> c_int {
    boundary::or_else("memcuda_version", early::interface_called, || ());
    1
}

/// `memcuda_result_name`.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_result_name(result: c_int) -> *const c_char {
    let name = usize::try_from(result)
        .ok()
        .and_then(|index| NAMES.get(index));
    name.copied().unwrap_or(c"unknown").as_ptr()
}

/// `memcuda_message`: valid until this thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_message() -> *const c_char {
    MESSAGE.with(|kept| kept.as_ptr().cast::<c_char>().cast_const())
}

/// `memcuda_cuda_result`.
#[unsafe(no_mangle)]
pub extern "C" fn memcuda_cuda_result() -> c_int {
    CUDA.get() as c_int
}
