//! Links libmemcuda.so so that it is never unloaded: programs keep pointers
//! into it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
