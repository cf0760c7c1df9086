//! Which function lies behind one of this library's, by the tables of the loaded files and in
//! the order in which the loader searches them: in another library that stands in for it, in a
//! library's scope (itself and what it needs, breadth first), then in the program's. (The loader
//! searches the program's first, for the version that the library was linked to.)
//!
//! `dlsym` waits for constructors and destructors of other threads to end, and these may wait
//! for the thread that asks. This waits for no more than a file's mapping or unmapping, loads
//! nothing and keeps nothing loaded.

use std::ffi::{CStr, CString, c_char, c_void};
use std::iter;
use std::ops::Range;
use std::ptr;

use once_cell::race::OnceBox;

use crate::libraries::dynamic::{self, Dynamic};
use crate::libraries::loader;

/// Files that others may load between the counting and the search.
const SPARE: usize = 16;
/// Names that are kept: a program that loads what it has just compiled has a new one each time.
const GLOBALS: usize = 1024;

/// A name under which a file was loaded for everybody, and the next one. Never freed.
struct Global {
    file: CString,
    next: OnceBox<Global>,
}

static GLOBAL: OnceBox<Global> = OnceBox::new();

/// A file is about to be loaded for everybody.
pub fn note_global(file: &CStr) {
    let fresh = || {
        let (file, next) = (file.to_owned(), OnceBox::new());
        Box::new(Global { file, next })
    };
    let mut place = &GLOBAL;
    for _ in 0..GLOBALS {
        let known = place.get_or_init(fresh);
        if known.file.as_c_str() == file {
            return;
        }
        place = &known.next;
    }
}

/// The function of this name behind the library in which `own` lies, as code at `caller`
/// would find it; null where neither what its module needs nor what the program began with
/// has one. Of a function with several symbol versions it is any one.
pub fn behind(own: usize, caller: usize, name: &CStr) -> *mut c_void {
    look_behind(own, caller, name).0
}

/// The same, and whether it comes before what the caller's own module needs.
pub fn look_behind(own: usize, caller: usize, name: &CStr) -> (*mut c_void, bool) {
    let mut count = SPARE;
    loader::find(|_| {
        count += 1;
        None::<()>
    });
    // Before the search: during it, a thread's first memory may be had only from the loader.
    let (mut files, mut queue) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let found = loader::held(|| {
        loader::find(|file| {
            if files.len() == files.capacity() {
                return Some(());
            }
            files.push(Listed::of(file));
            None
        });
        find(&files, &mut queue, own, caller, name)
    });
    found.flatten().unwrap_or((ptr::null_mut(), false))
}

/// The function of this name in any loaded library but the one that has `own`, whoever may find
/// it there; null where there is none.
pub fn elsewhere(own: *const c_void, name: &CStr) -> *mut c_void {
    let found = loader::find(|file| {
        // SAFETY: the library stays loaded while it is looked at.
        let found = unsafe { dynamic::look_up(Dynamic::of(file)?, name) };
        (!found.is_null() && !ptr::eq(found, own)).then_some(found)
    });
    found.unwrap_or(ptr::null_mut())
}

/// A loaded file, in the order in which they were loaded.
struct Listed {
    code: Range<usize>,
    dynamic: Option<Dynamic>,
    /// As the loader knows it.
    path: *const c_char,
    /// The last part of that.
    file: *const c_char,
    /// What it calls itself; null where it does not.
    soname: *const c_char,
}

impl Listed {
    fn of(file: &loader::File<'_>) -> Self {
        let dynamic = Dynamic::of(file);
        // SAFETY: the list is held, so it stays loaded.
        let soname = dynamic.and_then(|of| unsafe { of.texts(dynamic::SONAME) }.next());
        Self {
            code: file.code().unwrap_or_default(),
            dynamic,
            path: file.path().as_ptr(),
            // The end of a string.
            file: file.file().as_ptr().cast(),
            soname: soname.unwrap_or(ptr::null()),
        }
    }

    /// Is it what a file means that needs a library of this name, or of this path where
    /// that has no name of its own? The first one is.
    fn is_called(&self, name: *const c_char) -> bool {
        // SAFETY: strings of files that stay loaded; a string of a list that is held.
        let is = |own: *const c_char| !own.is_null() && unsafe { libc::strcmp(own, name) } == 0;
        is(self.soname) || is(self.file) || is(self.path)
    }

    /// What it exports whatever version is asked for.
    fn for_all(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the list is held, so it stays loaded.
        let found = unsafe { dynamic::look_up_for_all(self.dynamic?, name) };
        (!found.is_null()).then_some(found)
    }

    fn exported(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the list is held, so it stays loaded.
        let found = unsafe { dynamic::look_up(self.dynamic?, name) };
        (!found.is_null()).then_some(found)
    }
}

fn find(
    files: &[Listed],
    queue: &mut Vec<usize>,
    own: usize,
    caller: usize,
    name: &CStr,
) -> Option<(*mut c_void, bool)> {
    let holds = |address: usize| files.iter().position(|file| file.code.contains(&address));
    let own = holds(own)?;
    // What comes before this library, as another preloaded one, has been asked already, and
    // asks on.
    let exported = |at: usize| files[at].exported(name).filter(|_| at > own);
    // Everybody's is what the program began with and is of no version: what was preloaded
    // behind this library, to stand in for a runtime as well.
    let libc = files
        .iter()
        .position(|file| file.is_called(c"libc.so.6".as_ptr()));
    let began_with = own + 1..libc.unwrap_or(0);
    if let Some(found) = began_with
        .into_iter()
        .find_map(|at| files[at].for_all(name))
    {
        return Some((found, false));
    }
    let library = holds(caller).filter(|&at| at > 0);
    // Further behind, if the first one is of no version: that of what the program's libraries
    // need, then of what was loaded for everybody before the caller's own.
    let of_all = |at: usize| exported(at).map(|_| Some((at, files[at].for_all(name)?)));
    if let Some((_, found)) = search(files, queue, 0, of_all).flatten() {
        return Some((found, true));
    }
    let before = own + 1..library.unwrap_or(0);
    if before.clone().any(|at| files[at].for_all(name).is_some()) {
        let names = iter::successors(GLOBAL.get(), |known| known.next.get());
        let mut found = names.filter_map(|known| {
            let is = |file: &Listed| file.is_called(known.file.as_ptr());
            search(files, queue, files.iter().position(is)?, of_all)
        });
        if let Some((_, found)) = found.next().flatten().filter(|(at, _)| before.contains(at)) {
            return Some((found, true));
        }
    }
    // The program's own scope is everybody's, and has what was preloaded, too.
    if let Some(found) = library.and_then(|library| search(files, queue, library, exported)) {
        return Some((found, false));
    }
    let all = own + 1..files.len();
    let (first, found) = all.into_iter().find_map(|at| Some((at, exported(at)?)))?;
    // It was there from the beginning if something behind it was: what the program needs.
    search(files, queue, 0, |at| {
        (at >= first).then_some((found, false))
    })
}

/// What `look` finds in the first file in which it finds anything: the one with this number,
/// then what it needs, then what that needs.
fn search<T>(
    files: &[Listed],
    queue: &mut Vec<usize>,
    from: usize,
    look: impl Fn(usize) -> Option<T>,
) -> Option<T> {
    queue.clear();
    queue.push(from);
    let mut next = 0;
    while let Some(&at) = queue.get(next) {
        if let Some(found) = look(at) {
            return Some(found);
        }
        if let Some(dynamic) = files[at].dynamic {
            // SAFETY: the list is held, so it stays loaded.
            for name in unsafe { dynamic.texts(dynamic::NEEDED) } {
                let needed = files.iter().position(|file| file.is_called(name));
                queue.extend(needed.filter(|needed| !queue.contains(needed)));
            }
        }
        next += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_behind_the_program_for_it_and_for_libraries() {
        let own = super::behind as *const () as usize;
        let libc = libc::getpid as *const () as usize;
        for caller in [own, libc] {
            assert_eq!(behind(own, caller, c"getpid") as usize, libc);
            assert!(behind(own, caller, c"no_such_function").is_null());
        }
        // Nobody asks for what is there already.
        assert!(behind(libc, own, c"getpid").is_null());
        assert!(behind(8, own, c"getpid").is_null());
    }

    #[test]
    fn names_of_what_was_loaded_for_everybody_are_kept_within_bounds() {
        for number in 0..2 * GLOBALS {
            note_global(&CString::new(format!("compiled{number}.so")).unwrap());
            note_global(c"compiled0.so");
        }
        let kept = iter::successors(GLOBAL.get(), |known| known.next.get());
        assert_eq!(kept.count(), GLOBALS);
    }
}
