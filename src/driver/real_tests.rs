//! [`Real`] over functions written here, which note how they were called.

use std::cell::{Cell, RefCell};

use super::super::properties::{DECOMPRESS, POSIX_FD, RDMA};
use super::*;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(1) };
    static MODE: Cell<u32> = const { Cell::new(0) };
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static REFUSE: Cell<u8> = const { Cell::new(0) };
    static MADE: Cell<u8> = const { Cell::new(0) };
    static CLOSED: Cell<u8> = const { Cell::new(0) };
    static FAILS: Cell<u32> = const { Cell::new(999) };
    static EVENT: Cell<u32> = const { Cell::new(0) };
    static HOST: Cell<u32> = const { Cell::new(0) };
}

fn note(text: String) {
    SEEN.with_borrow_mut(|seen| seen.push(text));
}

fn seen() -> Vec<String> {
    SEEN.take()
}

extern "C" fn succeed() -> Code {
    Code::SUCCESS
}

extern "C" fn device_get(device: *mut i32, ordinal: i32) -> Code {
    // SAFETY: the code under test passes a valid pointer.
    unsafe { *device = ordinal };
    Code::SUCCESS
}

extern "C" fn attribute(value: *mut i32, _attribute: i32, _device: i32) -> Code {
    // SAFETY: the code under test passes a valid pointer.
    unsafe { *value = 1 };
    Code::SUCCESS
}

extern "C" fn current(context: *mut Context) -> Code {
    // SAFETY: the code under test passes a valid pointer.
    unsafe { *context = Context(CURRENT.get()) };
    Code::SUCCESS
}

extern "C" fn push(context: Context) -> Code {
    note(format!("push {}", context.0));
    CURRENT.set(context.0);
    Code::SUCCESS
}

extern "C" fn pop(_context: *mut Context) -> Code {
    note("pop".into());
    CURRENT.set(1);
    Code::SUCCESS
}

extern "C" fn exchange(mode: *mut u32) -> Code {
    // SAFETY: the code under test passes a valid pointer.
    let given = unsafe { mode.read() };
    // SAFETY: as above.
    unsafe { mode.write(MODE.replace(given)) };
    Code::SUCCESS
}

extern "C" fn record(_event: Event, stream: Stream) -> Code {
    note(format!("record on {} in {}", stream.0, CURRENT.get()));
    Code::SUCCESS
}

extern "C" fn query(_event: Event) -> Code {
    note(format!("query in mode {}", MODE.get()));
    Code(EVENT.get())
}

extern "C" fn mem_alloc(at: *mut Address, bytes: usize) -> Code {
    note(format!("allocate {bytes} in mode {}", MODE.get()));
    // SAFETY: the code under test passes a valid pointer.
    unsafe { *at = 77 };
    Code(EVENT.get())
}

extern "C" fn mem_free(at: Address) -> Code {
    note(format!("free {at} in mode {}", MODE.get()));
    Code::SUCCESS
}

extern "C" fn host_alloc(_at: *mut *mut c_void, bytes: usize, _flags: u32) -> Code {
    note(format!("allocate {bytes} of the host"));
    Code(HOST.get())
}

extern "C" fn host_free(_at: *mut c_void) -> Code {
    note("free it".into());
    Code::SUCCESS
}

extern "C" fn create(
    handle: *mut Handle,
    _bytes: usize,
    wanted: *const MemAllocationProp,
    _flags: u64,
) -> Code {
    // SAFETY: the code under test passes a valid pointer.
    let wanted = unsafe { *wanted };
    let bits = wanted.requested_handle_types as u8 * POSIX_FD
        + wanted.alloc_flags.gpu_direct_rdma_capable * RDMA
        + (wanted.alloc_flags.usage / 2) as u8 * DECOMPRESS;
    note(format!("create {bits}"));
    MADE.set(bits);
    if bits & REFUSE.get() != 0 {
        return Code::NOT_SUPPORTED;
    }
    // SAFETY: the code under test passes a valid pointer.
    unsafe { *handle = Handle(7) };
    Code::SUCCESS
}

/// Handles of any kind.
const ALL: u8 = u8::MAX;

extern "C" fn set_access(
    _at: Address,
    _bytes: usize,
    _access: *const MemAccessDesc,
    _count: usize,
) -> Code {
    match CLOSED.get() {
        ALL => Code(FAILS.get()),
        closed if MADE.get() & closed != 0 => Code(FAILS.get()),
        _ => Code::SUCCESS,
    }
}

extern "C" fn unmap(_at: Address, _bytes: usize) -> Code {
    note("unmap".into());
    Code::SUCCESS
}

extern "C" fn release(_handle: Handle) -> Code {
    note("release".into());
    Code::SUCCESS
}

fn lookup(name: &CStr) -> *mut c_void {
    match name.to_str().unwrap() {
        "cuDeviceGet" => device_get as *mut c_void,
        "cuDeviceGetAttribute" => attribute as *mut c_void,
        "cuCtxGetCurrent" => current as *mut c_void,
        "cuCtxPushCurrent_v2" => push as *mut c_void,
        "cuCtxPopCurrent_v2" => pop as *mut c_void,
        "cuThreadExchangeStreamCaptureMode" => exchange as *mut c_void,
        "cuEventRecord" => record as *mut c_void,
        "cuEventQuery" => query as *mut c_void,
        "cuMemAlloc_v2" => mem_alloc as *mut c_void,
        "cuMemFree_v2" => mem_free as *mut c_void,
        "cuMemHostAlloc" => host_alloc as *mut c_void,
        "cuMemFreeHost" => host_free as *mut c_void,
        "cuMemCreate" => create as *mut c_void,
        "cuMemSetAccess" => set_access as *mut c_void,
        "cuMemUnmap" => unmap as *mut c_void,
        "cuMemRelease" => release as *mut c_void,
        "cuCtxRecordEvent" => ptr::null_mut(),
        _ => succeed as *mut c_void,
    }
}

fn driver() -> Real {
    // SAFETY: the functions have the signatures of the entry points that the
    // tests call; the others are never called.
    unsafe { Real::resolve(&lookup) }.unwrap()
}

#[test]
fn a_missing_required_entry_point_is_named() {
    let without_map = |name: &CStr| match name.to_str().unwrap() {
        "cuMemMap" => ptr::null_mut(),
        _ => succeed as *mut c_void,
    };
    // SAFETY: nothing of the table is called.
    let result = unsafe { Real::resolve(&without_map) };
    assert_eq!(result.unwrap_err(), "cuMemMap");
}

#[test]
fn a_missing_optional_entry_point_is_an_error_when_used() {
    assert_eq!(
        driver().record_context(Event(1), Context(1)),
        Err(Code::NOT_FOUND)
    );
}

#[test]
fn another_context_is_pushed_for_the_call_only() {
    driver().record(Event(1), Context(1), Stream(9)).unwrap();
    assert_eq!(seen(), ["record on 9 in 1"]);
    driver().record(Event(1), Context(5), Stream(9)).unwrap();
    assert_eq!(seen(), ["push 5", "record on 9 in 5", "pop"]);
}

#[test]
fn events_are_queried_in_relaxed_mode_and_the_mode_is_given_back() {
    assert_eq!(driver().is_complete(Event(1)), Ok(true));
    EVENT.set(Code::NOT_READY.0);
    assert_eq!(driver().is_complete(Event(1)), Ok(false));
    EVENT.set(Code::ILLEGAL_ADDRESS.0);
    assert_eq!(driver().is_complete(Event(1)), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(seen(), ["query in mode 2"; 3]);
    assert_eq!(MODE.get(), 0);
}

#[test]
fn a_wait_by_a_free_is_made_in_its_context_and_frees_what_it_has() {
    assert_eq!(driver().synchronize_by_free(Context(5)), Ok(()));
    let made = ["push 5", "allocate 1 in mode 2", "free 77 in mode 2", "pop"];
    assert_eq!(seen(), made);
    EVENT.set(Code::OUT_OF_MEMORY.0);
    assert_eq!(driver().synchronize_by_free(Context(1)), Ok(()));
    let of_host = [
        "allocate 1 in mode 2",
        "allocate 1048576 of the host",
        "free it",
    ];
    assert_eq!(seen(), of_host);
    HOST.set(Code::OUT_OF_MEMORY.0);
    let full = driver().synchronize_by_free(Context(1));
    assert_eq!(full, Err(Code::OUT_OF_MEMORY));
    assert_eq!(seen(), of_host[..2]);
    assert_eq!(MODE.get(), 0);
}

#[test]
fn properties_that_the_driver_refuses_are_given_up_once() {
    let driver = driver();
    REFUSE.set(DECOMPRESS | RDMA);
    assert_eq!(driver.create(0, 2 << 20), Ok(Handle(7)));
    assert_eq!(seen(), ["create 7", "create 3", "create 1"]);
    driver.create(0, 2 << 20).unwrap();
    assert_eq!(seen(), ["create 1"]);
    REFUSE.set(0);
    driver.create(1, 2 << 20).unwrap();
    assert_eq!(seen(), ["create 7"]);
}

#[test]
fn what_a_program_asks_for_is_made_like_ours_and_teaches_where_it_is_usual() {
    let driver = driver();
    let mut wanted = Properties::supported(|_| false).of_handle(2);
    wanted.requested_handle_types = sys::HANDLE_FABRIC;
    REFUSE.set(DECOMPRESS);
    driver.create_as(2 << 20, &wanted).unwrap();
    assert_eq!(seen(), ["create 15", "create 11"], "8 beside ours");
    wanted.requested_handle_types = sys::HANDLE_POSIX_FD;
    driver.create_as(2 << 20, &wanted).unwrap();
    driver.create_as(2 << 20, &wanted).unwrap();
    assert_eq!(seen(), ["create 7", "create 3", "create 3"]);
}

#[test]
fn what_can_be_made_and_not_opened_is_given_up() {
    let driver = driver();
    CLOSED.set(RDMA);
    driver.learn_to_open(0).unwrap();
    let each = |bits| [format!("create {bits}"), "unmap".into(), "release".into()];
    assert_eq!(seen(), [each(7), each(3), each(1)].concat());
    let mut wanted = Properties::supported(|_| false).of_handle(0);
    wanted.alloc_flags.gpu_direct_rdma_capable = 1;
    driver.create_as(2 << 20, &wanted).unwrap();
    assert_eq!(seen(), ["create 1"], "though it was asked for");

    // Without memory nothing is learned, and nothing from a context that is broken.
    for code in [Code::OUT_OF_MEMORY, Code::ILLEGAL_ADDRESS] {
        FAILS.set(code.0);
        driver.learn_to_open(1).unwrap();
        assert_eq!(seen(), each(7));
    }
    // It is before the next handle, which else would be one that cannot be opened.
    FAILS.set(Code::OUT_OF_MEMORY.0);
    assert_eq!(driver.create(1, 2 << 20), Err(Code::OUT_OF_MEMORY));
    assert_eq!(seen(), each(7));
    FAILS.set(999);
    wanted.location = super::properties::location(1);
    driver.create_as(2 << 20, &wanted).unwrap();
    driver.create(1, 2 << 20).unwrap();
    let made = ["create 1".to_owned(), "create 1".to_owned()];
    assert_eq!(seen(), [&each(7)[..], &each(3), &each(1), &made].concat());
    CLOSED.set(ALL);
    assert_eq!(driver.learn_to_open(2), Err(Code::UNKNOWN));
    assert_eq!(seen(), [each(7), each(3), each(1), each(0)].concat());
}
