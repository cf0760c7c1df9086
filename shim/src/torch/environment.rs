//! What torch's configuration library is told of the allocator setting.
//!
//! Torch reads the first that is set of three variables, with `getenv`, while
//! its libraries are loaded: before it is known whether the driver works. So
//! this answers with a changed setting only where all that can be known then
//! is known: a valid configuration, a driver library with the calls of the
//! pool, and for the native profile an allocator whose scopes can be counted.
//! The environment itself is never changed, and no other caller sees this.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use memcuda_core::config::{Config, Debug, Policy, Torch};

use super::conf::{self, Profile, Setting};
use super::library::{self, Library};
use super::{between, limits, nccl, notice, places, sharing, split, watched_layout};
use crate::libraries::{aside, modules, resolve};
use crate::process::environment;

/// In torch's order: the first that is set counts alone.
const SETTINGS: [&CStr; 3] = [
    c"PYTORCH_CUDA_ALLOC_CONF",
    c"PYTORCH_HIP_ALLOC_CONF",
    c"PYTORCH_ALLOC_CONF",
];
const NO_CACHING: &CStr = c"PYTORCH_NO_CUDA_MEMORY_CACHING";

/// Whether torch may share the pages of expandable segments. That is its default so
/// far; what shares segments by cudaMalloc must not fail where it is another.
const SHARES_PAGES: &CStr = c"TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";

/// What the pool cannot do without.
const DRIVER_CALLS: [&CStr; 9] = [
    c"cuGetProcAddress_v2",
    c"cuMemAddressReserve",
    c"cuMemAddressFree",
    c"cuMemCreate",
    c"cuMemRelease",
    c"cuMemMap",
    c"cuMemSetAccess",
    c"cuMemUnmap",
    c"cuStreamIsCapturing",
];

/// Was torch told not to split its large segments?
static COOPERATES: AtomicBool = AtomicBool::new(false);
/// Was torch told to use expandable segments, over pages of ours?
static MAPS_PAGES: AtomicBool = AtomicBool::new(false);
/// And were they not the user's own wish?
static TURNED_ON: AtomicBool = AtomicBool::new(false);
/// And was the size of their pages not the user's?
static SIZED: AtomicBool = AtomicBool::new(false);
/// Is there a device that can have no pages, as far as is known?
static NO_PAGES: AtomicBool = AtomicBool::new(false);
/// One of which nothing can be pooled?
static NO_POOL: AtomicBool = AtomicBool::new(false);
static CACHING_OFF: AtomicBool = AtomicBool::new(false);
/// What this process is told, or why torch keeps its own settings.
static DECISION: OnceLock<Result<Decision, &str>> = OnceLock::new();

/// What torch is to do with a setting that says nothing against it.
#[derive(Clone, Copy)]
struct Decision {
    profile: Profile,
    /// What `MEMCUDA_TORCH` asks for.
    asked: Torch,
    /// Why torch has segments by cudaMalloc, where native could have expandable ones.
    unfit: Option<&'static str>,
}

/// Does torch have the setting with which it gives segments back one by one?
pub fn cooperates() -> bool {
    COOPERATES.load(Ordering::Relaxed)
}

/// Does torch have expandable segments whose pages are ours?
pub fn maps_pages() -> bool {
    MAPS_PAGES.load(Ordering::Relaxed)
}

/// Would torch by itself have no expandable segments?
pub fn turned_pages_on() -> bool {
    TURNED_ON.load(Ordering::Relaxed)
}

/// Would torch by itself have segments of another size?
pub fn sized_segments() -> bool {
    SIZED.load(Ordering::Relaxed)
}

/// Torch is not told to use expandable segments from now on.
pub fn no_pages() {
    NO_PAGES.store(true, Ordering::Relaxed);
}

/// Torch is not asked to give segments back from now on.
pub fn no_pool() {
    NO_POOL.store(true, Ordering::Relaxed);
    COOPERATES.store(false, Ordering::Relaxed);
}

/// Torch, which was told to use expandable segments, uses none: it has segments that it gives
/// back one by one.
pub fn has_segments() {
    MAPS_PAGES.store(false, Ordering::Relaxed);
    TURNED_ON.store(false, Ordering::Relaxed);
    SIZED.store(false, Ordering::Relaxed);
    COOPERATES.store(true, Ordering::Relaxed);
}

/// Was torch told not to cache?
pub fn caching_is_off() -> bool {
    CACHING_OFF.load(Ordering::Relaxed)
}

/// What to answer instead of `value`, the variable's own; `None`: nothing else.
pub fn merged(caller: usize, name: &CStr, value: *const c_char) -> Option<*const c_char> {
    if name == NO_CACHING {
        note_caching(caller, value);
        return None;
    }
    if name == SHARES_PAGES {
        let told = value.is_null() && maps_pages() && is_configuration(caller);
        return told.then_some(c"1".as_ptr());
    }
    if !SETTINGS.contains(&name) || !is_configuration(caller) {
        return None;
    }
    let allocator = library::named("libc10_cuda.so")?;
    if split::reads_it_itself(&allocator) && is_for_others(name, value) {
        return None;
    }
    let decision = *DECISION.get_or_init(|| {
        decide(&allocator).inspect_err(|reason| {
            notice::info(|| format!("torch keeps its own settings: {reason}"));
        })
    });
    let decision = decision.ok()?;
    let own = if value.is_null() {
        if name != SETTINGS[0] || another_is_set(&allocator) {
            return None;
        }
        String::new()
    } else {
        // SAFETY: the value of a variable, a string.
        unsafe { CStr::from_ptr(value) }.to_str().ok()?.to_owned()
    };
    answer(decision, name, own)
}

/// Torch takes only "1" for yes, and asks once.
fn note_caching(caller: usize, value: *const c_char) {
    // SAFETY: not null, so the value of a variable, a string.
    let is_one = !value.is_null() && unsafe { CStr::from_ptr(value) } == c"1";
    if is_one && is_configuration(caller) {
        CACHING_OFF.store(true, Ordering::Relaxed);
    }
}

/// Does the code lie in the libraries that read torch's configuration?
fn is_configuration(caller: usize) -> bool {
    modules::at(caller)
        .is_some_and(|about| about.file().starts_with(b"libc10") && about.file().ends_with(b".so"))
}

/// Does 2.9 ask for pinned memory, whose allocator is none that a profile is for? It would take
/// an answer for its user's, and warn of the variable's old name. The device's allocator, which
/// reads its setting itself, knows the first name alone; for others the last one is asked first.
fn is_for_others(name: &CStr, value: *const c_char) -> bool {
    thread_local! {
        /// Is the first name asked for next, since the last one is not set?
        static GOES_ON: Cell<bool> = const { Cell::new(false) };
    }
    if name != SETTINGS[0] {
        GOES_ON.set(name == SETTINGS[2] && value.is_null());
        return name == SETTINGS[2];
    }
    GOES_ON.replace(false)
}

fn decide(allocator: &Library) -> Result<Decision, &'static str> {
    let Ok(config) = Config::read(environment::variable) else {
        return Err("the configuration of memcuda is not valid");
    };
    if config.disable || aside::stands() || config.policy == Policy::Track {
        return Err("memcuda serves no memory");
    }
    if config.torch == Torch::Keep {
        return Err("MEMCUDA_TORCH=keep");
    }
    if !driver_has_the_calls() {
        return Err("there is no driver with the calls of the pool");
    }
    let of = |(profile, unfit)| Decision {
        profile,
        asked: config.torch,
        unfit,
    };
    if config.torch == Torch::Async {
        return Ok(of((Profile::Async, None)));
    }
    if environment::raw(NO_CACHING).is_some_and(|v| v == c"1") {
        return Err("PYTORCH_NO_CUDA_MEMORY_CACHING is set");
    }
    native(allocator, &config).map(of).inspect_err(|reason| {
        if config.torch != Torch::Auto {
            let asked = config.torch.word();
            notice::warn(|| {
                format!(
                    "MEMCUDA_TORCH={asked}: torch keeps its own settings, for its allocator cannot be asked ({reason})"
                )
            });
        }
    })
}

/// In which of its ways torch's own allocator is asked to give back, and why not in the better one.
/// It is never asked through another library, which sees segments and no page, and may take a
/// failure for the end.
fn native(
    allocator: &Library,
    config: &Config,
) -> Result<(Profile, Option<&'static str>), &'static str> {
    watched_layout(allocator)?;
    split::obstacle(allocator).map_or(Ok(()), Err)?;
    if NO_POOL.load(Ordering::Relaxed) {
        return Err("a device has no virtual memory management");
    }
    let wants_pages = config.torch != Torch::Segments;
    let unfit = wants_pages.then(|| unfit(config)).flatten();
    if config.torch != Torch::Expandable || unfit.is_some() {
        between::obstacle(allocator).map_or(Ok(()), Err)?;
    }
    if !wants_pages || unfit.is_some() {
        return Ok((Profile::Segments, unfit));
    }
    if config.names.is_some() || config.names_file.is_some() {
        notice::warn(|| {
            "rules name no memory of torch's in its native profile: name tensors by the \
             interface of include/memcuda.h, or set MEMCUDA_TORCH=async"
                .to_owned()
        });
    }
    Ok((Profile::Expandable, None))
}

/// Says what torch does instead of what is best: to who asked for other than that as a warning.
fn keeps(asked: Torch, is_as_asked: bool, text: impl FnOnce() -> String) {
    match is_as_asked {
        true => notice::info(text),
        false => notice::warn(|| format!("MEMCUDA_TORCH={}: {}", asked.word(), text())),
    }
}

/// Why the pages of expandable segments are not kept here. Torch before 2.11 ends
/// the program where expandable segments and `max_split_size_mb` meet, and has
/// pools that throw; it does not know the key, either.
fn unfit(config: &Config) -> Option<&'static str> {
    if config.policy == Policy::Direct {
        return Some("MEMCUDA_POLICY=direct keeps nothing");
    }
    if !library::knows(places::LARGE_KEY) {
        return Some("this torch is older than 2.11 (it has no large_segment_size_mb)");
    }
    if !places::are_known() {
        return Some("its switch for expandable segments, which private pools need, is not found");
    }
    if NO_PAGES.load(Ordering::Relaxed) {
        return Some(
            "a device has no virtual memory management, none whose memory can be shared, or too few \
             addresses for it",
        );
    }
    if config.torch == Torch::Expandable {
        return None;
    }
    if config.debug != Debug::None {
        return Some("MEMCUDA_DEBUG looks after what the pool lends");
    }
    if shares_no_pages() {
        return Some("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0 lets no other process have pages");
    }
    nccl::obstacle().or_else(sharing::obstacle)
}

/// Did the user turn the sharing of pages off, and not turn pages on beside it? What shares torch's
/// memory works by segments then. Torch takes only "0" for no.
fn shares_no_pages() -> bool {
    let setting = SETTINGS.into_iter().find_map(environment::raw);
    let has_pages = |own: &CStr| own.to_str().is_ok_and(conf::has_expandable);
    environment::raw(SHARES_PAGES).is_some_and(|it| it == c"0") && !setting.is_some_and(has_pages)
}

/// Loads the driver's library, as the program's own runtime is about to; makes
/// no call of it.
fn driver_has_the_calls() -> bool {
    // SAFETY: a constant name; the handle stays open, so nothing is unloaded.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    !driver.is_null()
        && DRIVER_CALLS
            .iter()
            .all(|name| !resolve::symbol(driver, name).is_null())
}

/// Is a later variable set that this torch would read? An allocator that does names the
/// last of them itself: 2.9 reads the first alone, though its `libc10.so` names all.
fn another_is_set(allocator: &Library) -> bool {
    let mut later = SETTINGS[1..].iter();
    later.any(|name| environment::raw(name).is_some()) && allocator.holds(SETTINGS[2])
}

/// One answer for each variable and value, made once and never freed: torch
/// may keep the pointer.
fn answer(decision: Decision, name: &CStr, own: String) -> Option<*const c_char> {
    type Answers = Vec<(CString, String, Option<&'static CStr>)>;
    static ANSWERS: Mutex<Answers> = Mutex::new(Vec::new());
    let mut answers = ANSWERS.lock().ok()?;
    if let Some(known) = answers.iter().find(|a| *a.0 == *name && a.1 == own) {
        return known.2.map(CStr::as_ptr);
    }
    let text = apply(decision, name, &own);
    let text = text.and_then(|t| CString::new(t).ok());
    let text: Option<&'static CStr> = text.map(|t| &*Box::leak(t.into_boxed_c_str()));
    answers.push((name.to_owned(), own, text));
    text.map(CStr::as_ptr)
}

fn apply(decision: Decision, name: &CStr, own: &str) -> Option<String> {
    let (name, asked) = (name.to_string_lossy(), decision.asked);
    let setting = conf::merged(decision.profile, own).inspect_err(|reason| {
        let text = || format!("torch keeps {name}={own}: {reason}");
        keeps(asked, asked == Torch::Auto, text);
    });
    let Setting {
        profile,
        text,
        changed,
        unfit,
    } = setting.ok()?;
    if let Some(reason) = unfit.or(decision.unfit) {
        let text = || format!("torch keeps segments by cudaMalloc: {reason}");
        keeps(asked, asked != Torch::Expandable, text);
    }
    notice::info(|| {
        let word = profile.word();
        format!("torch's profile is {word} (MEMCUDA_TORCH={})", asked.word())
    });
    if conf::says(own, limits::KEY) {
        limits::has_limit();
    }
    let is_ours = profile != Profile::Async && !conf::says(own, "max_split_size_mb");
    split::is_told(is_ours);
    match profile {
        Profile::Segments => COOPERATES.store(true, Ordering::Relaxed),
        Profile::Expandable => {
            MAPS_PAGES.store(true, Ordering::Relaxed);
            TURNED_ON.store(!conf::has_expandable(own), Ordering::Relaxed);
            SIZED.store(!conf::says(own, "large_segment_size_mb"), Ordering::Relaxed);
        }
        Profile::Async => {}
    }
    if changed.is_empty() {
        notice::info(|| format!("torch is told {name}={text}"));
    } else {
        notice::warn(|| format!("torch is told {name}={text} ({})", changed.join("; ")));
    }
    Some(text)
}
