//! What a recording calls threads, libraries and named memory: each is written
//! once, when it first comes up, and a number from then on.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Mutex;

use once_cell::race::OnceRef;

use memcuda_core::lock::lock;

use super::{Caller, asks};
use crate::libraries::caller::{self, is_of_cuda};
use crate::libraries::modules::{self, About, Module, NUMBERED};
use crate::process::backtrace;

/// The words that a recording has.
#[derive(Default)]
pub struct Words {
    /// Which library it was told of by each number.
    libraries: [OnceRef<'static, About>; NUMBERED],
    names: Mutex<HashMap<String, u16>>,
}

/// A call site and the number of the library it lies in.
type Site = (usize, u16);

thread_local! {
    /// Does the recording know this thread?
    static KNOWN: Cell<bool> = const { Cell::new(false) };
    /// The call sites seen last on this thread. A library that comes to lie where
    /// another was is taken for that one while they are here.
    static SITES: [Cell<Site>; 8] = const { [const { Cell::new((0, 0)) }; 8] };
}

/// Is this the first event of the calling thread?
pub fn is_new_thread() -> bool {
    !KNOWN.replace(true)
}

/// The calling thread, as people know it: its name and the system's number.
pub fn thread_name() -> String {
    // SAFETY: takes nothing and cannot fail.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    format!("{} ({number})", caller::thread())
}

impl Words {
    /// The number of the library that made a call, 0 where that is not known;
    /// `tell` gets those that are new.
    pub fn caller(&self, caller: Caller, tell: impl Fn(u16, &str)) -> u16 {
        let number = match caller.site {
            Some(site) => self.at_site(site, &tell),
            None => self.library(caller.module, &tell),
        };
        match number {
            0 if caller.asks => asks::number(|at| {
                // Between CUDA and the stack's end may be code of no module.
                let about = modules::at(at).filter(|about| !about.holds(backtrace::own()))?;
                (!is_of_cuda(about.file())).then(|| self.library(about.module(), &tell))
            }),
            number => number,
        }
    }

    fn at_site(&self, site: usize, tell: impl FnOnce(u16, &str)) -> u16 {
        SITES.with(|sites| {
            let seen = &sites[(site >> 2) % sites.len()];
            let (known, number) = seen.get();
            if known == site {
                return number;
            }
            let number = self.library(modules::number(site), tell);
            seen.set((site, number));
            number
        })
    }

    fn library(&self, module: Module, tell: impl FnOnce(u16, &str)) -> u16 {
        let Some(about) = module.about() else {
            return 0;
        };
        let file = about.file();
        if is_of_cuda(file) {
            return 0;
        }
        let number = u16::from(module.0) + 1;
        let told = &self.libraries[module.0 as usize];
        // By several threads at once, where each comes by it first: it is to stand before
        // their events.
        if told.get().is_none() {
            match file {
                b"" => tell(number, &caller::program()),
                file => tell(number, &String::from_utf8_lossy(file)),
            }
            let _ = told.set(about);
        }
        // The number may have been another's, which is gone.
        let still = told.get().is_some_and(|told| told.path == about.path);
        if still { number } else { 0 }
    }

    /// The number of a name; `tell` gets it where it is new. 0 where there are
    /// too many.
    pub fn name(&self, name: &str, tell: impl FnOnce(u16)) -> u16 {
        let mut names = lock(&self.names);
        if let Some(number) = names.get(name) {
            return *number;
        }
        let Ok(number) = u16::try_from(names.len() + 1) else {
            return 0;
        };
        names.insert(name.to_owned(), number);
        tell(number);
        number
    }
}
