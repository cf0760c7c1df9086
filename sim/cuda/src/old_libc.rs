//! Lets an old glibc load the simulated driver, as it loads NVIDIA's, so that
//! `make test-compat` can try libmemcuda.so there. What 2.34 moved from
//! libpthread into libc is asked for under its first version; a process that
//! loads a driver has libpthread.

/// Defines each name, hidden, as a jump to libc's function of that version.
macro_rules! versioned {
    ($version:literal: $($name:literal)*) => {$(
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            concat!(".symver memcuda_sim_", $name, ", ", $name, "@GLIBC_", $version),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "endbr64",
            concat!("jmp [rip + memcuda_sim_", $name, "@GOTPCREL]"),
        );

        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(
            concat!(".symver memcuda_sim_", $name, ", ", $name, "@GLIBC_2.17"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "hint #34", // bti c
            concat!("adrp x16, :got:memcuda_sim_", $name),
            concat!("ldr x16, [x16, :got_lo12:memcuda_sim_", $name, "]"),
            "br x16",
        );
    )*};
}

versioned! { "2.2.5":
    "pthread_key_create"
    "pthread_key_delete"
    "pthread_setspecific"
    "pthread_sigmask"
    "pthread_create"
    "pthread_detach"
    "pthread_attr_setstacksize"
    "pthread_attr_getstack"
    "pthread_attr_getguardsize"
    "pthread_getattr_np"
    "dlsym"
}
versioned! { "2.12":
    "pthread_setname_np"
}
