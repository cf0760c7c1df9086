//! `cuInit`: the one place where the library starts, after the real one has
//! succeeded.

use std::ffi::CStr;
use std::sync::Arc;

use memcuda_core::config::{Config, Level};
use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Driver, cancel};
use memcuda_core::units::MIB;

use crate::counters::stats_page::Page;
use crate::counters::track::Track;
use crate::driver::calls::Calls;
use crate::driver::captures::Captures;
use crate::engine::device::Device;
use crate::engine::{self, Engine};
use crate::engine::{boundary, reserve, worker};
use crate::entry::substitute::Probe;
use crate::entry::{dlopen, substitute};
use crate::libraries::{aside, old_libc, resolve, routes, unwind};
use crate::names::hints;
use crate::process::{environment, log};
use crate::record::Recorder;
use crate::share::early;
use crate::whose::Below;
use crate::{fork, hook, torch, watch, whose};

/// Reservations are whole numbers of so many bytes.
const STEP: u64 = 2 * MIB;

crate::slot! { cuInit ["cuInit" since 2000] Exported }

/// The hooks of this family.
pub static HOOKS: &[&hook::Hook] = &[&cuInit::HOOK];

crate::pass_caller! {
    /// `cuInit(flags)`.
    cuInit, initialize, "rsi", "x1"
}

/// `cuInit` for this library's own interface, in a process that has not made the
/// call yet; the driver is loaded.
pub fn initialize_here() -> Code {
    // SAFETY: the driver's function, without a caller that is to be known.
    unsafe { initialize(0, 0) }
}

unsafe extern "C" fn initialize(flags: u32, caller: usize) -> Code {
    type Real = unsafe extern "C" fn(u32) -> Code;
    let real = cuInit::HOOK.real();
    if real.is_null() {
        return hook::ABSENT;
    }
    let _held = cancel::hold();
    // SAFETY: the driver's function of this name, called as the program did.
    let code = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(real)(flags) };
    if code == Code::SUCCESS {
        let first = start();
        if let Some(engine) = engine::running() {
            let noted = || torch::note_runtime_call(caller);
            boundary::or_else("cuInit", noted, || ());
            if first {
                boundary::or_else("cuInit", || pages_or_none(engine), || ());
                torch::answers_by(run_around);
                torch::tells_of_tensors(tensor_lies);
                boundary::or_else("cuInit", || early::cuda_started(engine), || ());
            }
        }
    }
    code
}

/// Torch, which uses all devices in one way, has pages only where each of them can have any,
/// and is asked to give back only where each can have a pool.
fn pages_or_none(engine: &Engine) {
    let calls = &engine.calls;
    let devices = || engine.devices.iter();
    let lacking = devices().find(|it| !it.maps_what_is_shared(calls));
    if let Some(lacking) = lacking.or_else(|| without_addresses(engine)) {
        torch::has_no_pages(lacking.ordinal);
    }
    if devices().any(|it| !it.maps_memory(calls)) {
        torch::has_no_pool();
    }
}

/// A device for whose pages there are too few addresses, on small boards or by `ulimit -v`, where
/// torch is there: it ends the program then. It reserves 9/8 of a device's memory for the large
/// blocks of each stream, and for the small ones; tried is what four streams have, of all devices.
fn without_addresses(engine: &Engine) -> Option<&Device> {
    const PARTS: u64 = 4 * 2 * 9 / 8;
    if !torch::is_there() {
        return None;
    }
    let driver = &engine.driver;
    let mut reserved = Vec::new();
    let mut known = engine.devices.iter().filter(|it| it.total > 0);
    let lacking = known.find(|device| {
        let bytes = (PARTS * device.total).next_multiple_of(STEP);
        let at = driver.reserve(bytes);
        reserved.extend(at.map(|at| (at, bytes)));
        at == Err(Code::OUT_OF_MEMORY)
    });
    for (at, bytes) in reserved {
        let _ = driver.free_reservation(at, bytes);
    }
    lacking
}

/// A tensor of torch's lies here, if on its pages.
fn tensor_lies(at: Address, bytes: u64, new: bool) {
    let lies = || {
        let engine = engine::running();
        let pages = engine.into_iter().flat_map(Engine::pages);
        pages.for_each(|pages| pages.lent(at, bytes, new));
    };
    boundary::or_else("allocate", lies, || ());
}

/// The run of torch's pages around an address.
fn run_around(at: Address) -> Option<(Address, u64)> {
    let engine = engine::running()?;
    let around = || {
        let memory = whose::live(engine, at)?;
        let is_run = matches!(memory.below, Below::Pages(_));
        is_run.then_some((memory.block.base, memory.block.bytes))
    };
    boundary::or_else("getBaseAllocation", around, || None)
}

/// Starts the engine, once. Was this the first call?
fn start() -> bool {
    let first = engine::start(|| boundary::or_else("engine", make, || None));
    if first && engine::running().is_some_and(|engine| engine.recorder.is_some()) {
        worker::start();
    }
    first
}

/// The engine; `None` where the library has nothing to do, or cannot, which is
/// said.
fn make() -> Option<Engine> {
    if environment::disabled() {
        return None;
    }
    let config = settings()?;
    if let Some(other) = aside::other() {
        crate::log!(
            Warn,
            "{} stands in for the driver behind this library; running on that and the plain driver",
            other.path.to_string_lossy()
        );
        return None;
    }
    if is_passed_by() {
        return None;
    }
    old_libc::prepare();
    reserve::take();
    boundary::planted_panic("start");
    let (calls, driver) = tables()?;
    let devices = Device::all(&calls).inspect_err(|code| {
        crate::log!(
            Warn,
            "the devices cannot be listed ({code:?}); running on the plain driver"
        );
    });
    let devices = devices.ok()?;
    let limited = config.limit.iter().filter_map(|(ordinal, _)| *ordinal);
    for unseen in limited.filter(|&ordinal| ordinal as usize >= devices.len()) {
        crate::log!(
            Warn,
            "MEMCUDA_LIMIT is for device {unseen}, too, which this process does not see"
        );
    }
    let how = match substitute::probe() {
        Some(Probe::Identical) => "recognised by their pointers",
        Some(Probe::Different) => "told by name and version: cuGetProcAddress and dlsym differ",
        Some(Probe::Unanswered) | None => "recognised by their pointers, without a probe",
    };
    crate::log!(Info, "started; driver functions are {how}");
    routes::say();
    dlopen::speak();
    fork::watch();
    Some(Engine {
        devices,
        rules: hints::rules(&config),
        contexts: Arc::default(),
        captures: Captures::default(),
        track: Track::default(),
        page: Box::leak(Box::new(match config.stats {
            true => Page::new(),
            false => Page::none(),
        })),
        recorder: Recorder::start(&config),
        duty: watch::run,
        config,
        driver,
        calls,
    })
}

/// Does what the program looks up come from the driver, by another library's `dlsym`? Which is
/// said. What it is linked to would be the pool's, and each half would not know the other's memory.
fn is_passed_by() -> bool {
    let driver = resolve::driver();
    // The one that runtimes look up, by which they come to all others; old drivers have only one
    // of another name, or none.
    let names = [c"cuGetProcAddress_v2", c"cuGetProcAddress", c"cuMemFree_v2"];
    let real = |name: &&CStr| resolve::symbol(driver, name);
    let name = names.into_iter().find(|name| !real(name).is_null());
    let path = name.and_then(|name| aside::passed_by(driver, name, real(&name)));
    if let Some(path) = path {
        crate::log!(
            Warn,
            "{} comes before this library, and its dlsym leads past it; running on the plain driver",
            path.to_string_lossy()
        );
    }
    path.is_some()
}

/// The settings, and the log as they say; `None` where they turn the library off, or are
/// wrong.
fn settings() -> Option<Config> {
    let (mut config, wrong) = Config::read_all(environment::variable);
    if config.disable {
        return None;
    }
    // What is right of the log's own settings is for the line that says what is not, which
    // comes in any case.
    if !wrong.is_empty() && config.log == Level::Off {
        config.log = Level::Error;
    }
    log::configure(&config);
    if let Some(error) = wrong.first() {
        crate::log!(Error, "{error}; running on the plain driver");
        return None;
    }
    for name in environment::names().filter(|name| Config::is_unknown(name)) {
        crate::log!(Warn, "{name} is no setting, and changes nothing");
    }
    for line in config.without_effect() {
        crate::log!(Warn, "{line}");
    }
    Some(config)
}

/// What hooks and pool call in the driver; `None` where it lacks any of it, or the process
/// what a panic needs.
fn tables() -> Option<(Calls, Real)> {
    if !unwind::prepare() {
        crate::log!(
            Error,
            "libgcc_s.so.1 cannot be loaded; running on the plain driver"
        );
        return None;
    }
    let handle = resolve::driver();
    let lookup = |name: &CStr| resolve::symbol(handle, name);
    // SAFETY: the handle is the driver's and is never closed.
    let tables = unsafe { Calls::resolve(&lookup).and_then(|c| Ok((c, Real::resolve(&lookup)?))) };
    let tables = tables.inspect_err(|symbol| {
        crate::log!(
            Warn,
            "this driver has no {symbol}; running on the plain driver"
        );
    });
    tables.ok()
}
