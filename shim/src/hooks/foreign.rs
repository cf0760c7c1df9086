//! Memory that the driver hands out beside the pool: where it is out of
//! memory, room is made and the call made again ([`crate::room`]). A call that
//! was out of memory was not refused for a capture, so it may be repeated in
//! one.
//!
//! In the list is what takes memory of a device by itself: managed memory, arrays; code,
//! when it is loaded and, as drivers load lazily, when a function or variable of it is
//! first asked for; limits of contexts (stacks, heaps); executable graphs and their first
//! upload or launch, which back the memory of their nodes.
//!
//! Elsewhere: handles (`pages`); contexts (`contexts`); streams, which bring queues
//! (`streams`); access to the program's own mappings and from other devices, which takes
//! page tables (`mappings`, `peers`).
//! `cuMemAlloc`, `cuMemAllocPitch` and the stream-ordered calls make room where they
//! pass to the driver (`memory`, `pitch`, `asynchronous`),
//! except on a stream that captures: there the call adds a node to the
//! program's graph, and a second one would add another.
//!
//! Not in the list, because they take none of a device's memory: host memory
//! (`cuMemHostAlloc`, `cuMemAllocHost`, `cuMemHostRegister`), addresses
//! (`cuMemAddressReserve`) and mappings (`cuMemMap`), memory that exists already
//! (imports, IPC, graphics), textures and surfaces (descriptors), memory pools
//! (their allocations take it), nodes of graphs, links (`cuLink*` compiles on
//! the host), events. Not in the list either: kernel launches. The first launch
//! of a function that was never asked to load, or that needs a larger stack
//! than any before, takes memory too; hooking every launch for it was not worth
//! its cost. `CUDA_MODULE_LOADING=EAGER` moves it to the load.

use std::ffi::{c_char, c_void};

use memcuda_core::driver::sys::{
    LOCATION_DEVICE, LOCATION_HOST, LOCATION_HOST_NUMA, LOCATION_HOST_NUMA_CURRENT,
    MemAllocationProp, MemLocation,
};
use memcuda_core::driver::{Address, Stream};

use crate::engine::Engine;
use crate::room::{Place, with_room};

/// The device of the current context.
pub fn current(engine: &Engine) -> Place<'_> {
    match engine.current() {
        Ok((_, device)) => Place::Device(device),
        Err(_) => Place::Somewhere,
    }
}

/// A device by its handle.
pub fn on(engine: &Engine, device: i32) -> Place<'_> {
    match engine.by_handle(device) {
        Some(device) => Place::Device(device),
        None => Place::Somewhere,
    }
}

/// The device of a stream.
fn of(engine: &Engine, stream: Stream) -> Place<'_> {
    match engine.of_stream(stream) {
        Ok((_, device)) => Place::Device(device),
        Err(_) => Place::Somewhere,
    }
}

/// Where an executable graph takes memory: nodes of it may lie on other devices than that of
/// the current context.
fn of_graph(engine: &Engine, _graph: u64) -> Place<'_> {
    current(engine).first()
}

/// The same of one that is launched: than its stream's.
fn of_launch(engine: &Engine, stream: Stream) -> Place<'_> {
    of(engine, stream).first()
}

/// The device of a green context.
pub fn of_green(engine: &Engine, green: u64) -> Place<'_> {
    match engine
        .calls
        .view_of(green)
        .and_then(|view| engine.device_of(view))
    {
        Ok(device) => Place::Device(device),
        Err(_) => Place::Somewhere,
    }
}

/// Where a handle of these properties would lie.
pub fn located(engine: &Engine, properties: *const MemAllocationProp) -> Place<'_> {
    // SAFETY: null or, by the program's call, a whole structure.
    match unsafe { properties.as_ref() } {
        Some(properties) => at(engine, properties.location),
        None => Place::Somewhere,
    }
}

/// A location of the driver's.
pub fn at(engine: &Engine, location: MemLocation) -> Place<'_> {
    if is_hosts(location.kind) {
        return Place::Nowhere;
    }
    let ordinal = u32::try_from(location.id).ok();
    let ordinal = ordinal.filter(|_| location.kind == LOCATION_DEVICE);
    let device = ordinal.and_then(|ordinal| engine.by_ordinal(ordinal));
    device.map_or(Place::Somewhere, Place::Device)
}

/// Is memory of this kind of location the host's? There are kinds of which nobody knows the
/// device, such as parts of one.
fn is_hosts(kind: u32) -> bool {
    matches!(
        kind,
        LOCATION_HOST | LOCATION_HOST_NUMA | LOCATION_HOST_NUMA_CURRENT
    )
}

type Options = *mut *mut c_void;

/// Values of options as the program gave them. The driver writes into some, such as the
/// length of a log, where it read how long that may be.
struct Given(Vec<*mut c_void>);

impl Given {
    /// # Safety
    /// `values` is null, or has so many.
    unsafe fn of(values: Options, count: u32) -> Self {
        let count = if values.is_null() { 0 } else { count as usize };
        // SAFETY: by the function's own contract.
        let given = (0..count).map(|index| unsafe { values.add(index).read() });
        Self(given.collect())
    }

    /// Before each try. What the driver did not write may lie where nobody can.
    ///
    /// # Safety
    /// `values` are those that were given, still there.
    unsafe fn again(&self, values: Options) {
        for (index, given) in self.0.iter().enumerate() {
            // SAFETY: by the function's own contract; the driver has written another value there.
            unsafe {
                let value = values.add(index);
                if value.read() != *given {
                    value.write(*given);
                }
            }
        }
    }
}

/// Declares hooks of this family: `=>` says on which device, by default that of
/// the current context; `given`, which values of options each try gets.
macro_rules! with_room {
    ($($symbol:ident [$name:literal since $since:literal $($thread:ident)?]
        ($($arg:ident: $type:ty),* $(,)?) $(=> $place:ident($at:ident))?
        $(, given $values:ident[$count:ident])?)*) => {
        crate::hooks! {$(
            #[doc = concat!("`", stringify!($symbol), "`: real, with room made if need be.")]
            $symbol [$name since $since $($thread)?] ($($arg: $type),*) |real, engine| {
                $(
                    // SAFETY: the program's values, which the call is to read.
                    let given = unsafe { Given::of($values, $count) };
                )?
                with_room(engine, || with_room!(@place engine $($place $at)?), || {
                    // SAFETY: the program's own call, passed on, with its values.
                    unsafe {
                        $(given.again($values);)?
                        real($($arg),*)
                    }
                })
            }
        )*}
    };
    (@place $engine:ident) => { current($engine) };
    (@place $engine:ident $place:ident $at:ident) => { $place($engine, $at) };
}

with_room! {
    cuMemAllocManaged ["cuMemAllocManaged" since 6000]
        (out: *mut Address, bytes: usize, flags: u32)
    cuArrayCreate_v2 ["cuArrayCreate" since 3020]
        (array: *mut u64, shape: *const c_void)
    cuArray3DCreate_v2 ["cuArray3DCreate" since 3020]
        (array: *mut u64, shape: *const c_void)
    cuMipmappedArrayCreate ["cuMipmappedArrayCreate" since 5000]
        (array: *mut u64, shape: *const c_void, levels: u32)

    cuModuleLoad ["cuModuleLoad" since 2000]
        (module: *mut u64, file: *const c_char)
    cuModuleLoadData ["cuModuleLoadData" since 2000]
        (module: *mut u64, image: *const c_void)
    cuModuleLoadDataEx ["cuModuleLoadDataEx" since 2010]
        (module: *mut u64, image: *const c_void, count: u32, options: *mut u32, values: Options),
        given values[count]
    cuModuleLoadFatBinary ["cuModuleLoadFatBinary" since 2000]
        (module: *mut u64, image: *const c_void)
    cuModuleGetFunction ["cuModuleGetFunction" since 2000]
        (function: *mut u64, module: u64, name: *const c_char)
    cuModuleGetGlobal_v2 ["cuModuleGetGlobal" since 3020]
        (at: *mut Address, bytes: *mut usize, module: u64, name: *const c_char)
    cuFuncLoad ["cuFuncLoad" since 12040]
        (function: u64)
    cuLibraryLoadData ["cuLibraryLoadData" since 12000]
        (library: *mut u64, code: *const c_void, jit: *mut u32, jit_values: Options,
         jit_count: u32, options: *mut u32, values: Options, count: u32),
        given jit_values[jit_count]
    cuLibraryLoadFromFile ["cuLibraryLoadFromFile" since 12000]
        (library: *mut u64, file: *const c_char, jit: *mut u32, jit_values: Options,
         jit_count: u32, options: *mut u32, values: Options, count: u32),
        given jit_values[jit_count]
    cuLibraryGetModule ["cuLibraryGetModule" since 12000]
        (module: *mut u64, library: u64)
    cuLibraryGetGlobal ["cuLibraryGetGlobal" since 12000]
        (at: *mut Address, bytes: *mut usize, library: u64, name: *const c_char)
    cuLibraryGetManaged ["cuLibraryGetManaged" since 12000]
        (at: *mut Address, bytes: *mut usize, library: u64, name: *const c_char)
    cuKernelGetFunction ["cuKernelGetFunction" since 12000]
        (function: *mut u64, kernel: u64)

    cuCtxSetLimit ["cuCtxSetLimit" since 2000]
        (limit: u32, value: usize)

    cuGraphInstantiate ["cuGraphInstantiate" since 10000]
        (executable: *mut u64, graph: u64, node: *mut u64, log: *mut c_char, length: usize) => of_graph(graph)
    cuGraphInstantiate_v2 ["cuGraphInstantiate" since 11000]
        (executable: *mut u64, graph: u64, node: *mut u64, log: *mut c_char, length: usize) => of_graph(graph)
    // Since CUDA 12 the plain name stands for this one.
    cuGraphInstantiateWithFlags ["cuGraphInstantiate" since 12000]
        (executable: *mut u64, graph: u64, flags: u64) => of_graph(graph)
    cuGraphInstantiateWithParams ["cuGraphInstantiateWithParams" since 12000]
        (executable: *mut u64, graph: u64, parameters: *mut c_void) => of_graph(graph)
    cuGraphInstantiateWithParams_ptsz ["cuGraphInstantiateWithParams" since 12000 per_thread]
        (executable: *mut u64, graph: u64, parameters: *mut c_void) => of_graph(graph)
    cuGraphUpload ["cuGraphUpload" since 11010]
        (executable: u64, stream: Stream) => of_launch(stream)
    cuGraphUpload_ptsz ["cuGraphUpload" since 11010 per_thread]
        (executable: u64, stream: Stream) => of_launch(stream)
    cuGraphLaunch ["cuGraphLaunch" since 10000]
        (executable: u64, stream: Stream) => of_launch(stream)
    cuGraphLaunch_ptsz ["cuGraphLaunch" since 10000 per_thread]
        (executable: u64, stream: Stream) => of_launch(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_hosts_may_be_on_any_device() {
        let hosts = (0..10).filter(|kind| is_hosts(*kind));
        assert_eq!(hosts.collect::<Vec<_>>(), [2, 3, 4]);
    }
}
