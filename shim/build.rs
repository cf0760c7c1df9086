//! Links libmemcuda.so so that it is never unloaded, since programs keep pointers into it,
//! and so that what it takes for its own functions are its own: libraries that redirect
//! others' references by name (UCX can) would have it hand out theirs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
