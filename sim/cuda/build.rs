//! Gives the library the name under which programs look for it, and binds it to
//! its own functions, as NVIDIA's is: `cuGetProcAddress` hands those out, never
//! what a preloaded library exports under the same name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
