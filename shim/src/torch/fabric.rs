//! Torch's question whether a device is on a fabric. Releases from 2.13 on ask it of the
//! management library before the first page of an expandable segment is mapped, and some
//! end the program where that library, or a GPU before Hopper, does not know. Those before
//! ask for a page with a handle for one, and throw when they free a tensor that was shared
//! by it (pytorch/pytorch#190860). A torch that has such segments by our choice alone is
//! told that there is none: by itself it would not have asked, and the handles of its pages
//! are descriptors, as sharing wants them.
//!
//! Whoever asks for another reason gets torch's own answer, and so does a user who turned
//! these segments on. Takes no lock.

use std::ptr;

use memcuda_core::driver::sys::HANDLE_FABRIC;

use super::library::Exported;
use super::{environment, identity, layout};
use crate::process::asm::Next;

crate::tail_jump! {
    /// `bool c10::cuda::get_fabric_access(signed char device)`.
    _ZN3c104cuda17get_fabric_accessEa, on_asked
}

unsafe extern "C" fn on_asked(_device: usize, _unused: usize, caller: usize) -> Next {
    static REAL: Exported = Exported::new(c"libc10_cuda.so", c"_ZN3c104cuda17get_fabric_accessEa");
    match environment::turned_pages_on() && for_pages(caller) {
        true => Next::answer(ptr::null_mut()),
        false => Next::jump(REAL.behind(_ZN3c104cuda17get_fabric_accessEa)),
    }
}

/// Is torch told that there is no page with handles of these types, for a fabric?
pub fn refuses_page_with(handle_types: u32) -> bool {
    handle_types & HANDLE_FABRIC != 0 && environment::turned_pages_on()
}

/// Does this code make a handle to find out whether there is a fabric? It is no page, and
/// torch takes a failure for its answer, for good.
pub fn finds_out(caller: usize) -> bool {
    layout().is_some_and(|layout| layout.fabric.iter().any(|code| code.contains(&caller)))
}

/// Does the allocator ask? The other function of its library that does,
/// `get_fabric_clique_id`, tells what the real one has noted.
fn for_pages(caller: usize) -> bool {
    let clique = layout().and_then(|layout| layout.clique.as_ref());
    identity::is_allocator(caller) && clique.is_none_or(|code| !code.contains(&caller))
}
