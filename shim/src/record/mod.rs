//! What a process asks for and gives back, recorded as it happens
//! (`MEMCUDA_TRACE`). An event is one frame in a mapped file (`file`): nothing is
//! formatted, nothing locked, and a process that is killed has lost none that it
//! wrote. Words that events name are written once (`words`, `stacks`), where there is no
//! room as soon as there is (`late`).
//!
//! Memory that is given out is recorded behind the pool's answer, memory that
//! comes back takes its place in the file before: so whatever is given out
//! again, it was given back in an earlier frame.

mod asks;
mod bell;
mod disk;
mod file;
mod freeing;
mod late;
mod python;
mod stacks;
mod sum;
mod words;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memcuda_core::config::{Config, Stacks};
use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::epoch::now_us;
use memcuda_core::frames::{self, Kind, MOST_TEXT, PIECE_BYTES, Piece, Record, Use, Word};
use memcuda_core::names::Name;
use memcuda_core::pool::{Owner, Refusal, Request};

use crate::libraries::caller;
use crate::libraries::modules::Module;
use crate::process::tags::Tag;
use crate::process::threads;
use file::File;

pub use freeing::Freeing;

/// The recording of this process.
pub struct Recorder {
    file: File,
    path: PathBuf,
    began_ns: u64,
    stacks: Option<stacks::Stacks>,
    words: words::Words,
    late: late::Late,
}

/// Who made a call, as far as hooks know it.
#[derive(Clone, Copy)]
pub struct Caller {
    /// The call of the runtime's function, where that is tagged.
    pub site: Option<usize>,
    /// The module that called the driver's.
    pub module: Module,
    /// Is there a call at all, so that the stack tells where the others do not?
    pub asks: bool,
}

impl Caller {
    /// Somebody, whom only the stack tells.
    pub const UNKNOWN: Caller = Caller {
        site: None,
        module: Module::OTHER,
        asks: true,
    };
    /// Nobody.
    const NOBODY: Caller = Caller {
        asks: false,
        ..Self::UNKNOWN
    };

    /// Of a `cudaMalloc` or a `cudaFree`.
    pub fn of(tag: &Tag, module: Module) -> Self {
        let free = tag.cuda_free.map(|(site, _)| site);
        let site = tag.cuda_malloc.map(|(site, _)| site).or(free);
        Self {
            site,
            module,
            asks: true,
        }
    }
}

impl Recorder {
    /// Begins to record, if the settings say so. Where the file cannot be had,
    /// one line says why, and nothing is recorded.
    pub fn start(config: &Config) -> Option<Self> {
        let wanted = config.trace.as_ref()?;
        let is_folder = wanted.as_os_str().as_bytes().ends_with(b"/");
        let path = match is_folder {
            true => wanted.clone(),
            false => frames::path_of(wanted, std::process::id()),
        };
        let now_us = now_us();
        // The same moment: to make the file takes a while.
        let began_ns = clock_ns();
        let made = match is_folder {
            true => File::make_in(&path, now_us),
            false => File::make(&path, now_us),
        };
        let (file, path) = match made {
            Ok(made) => made,
            Err(why) => {
                crate::log!(
                    Error,
                    "MEMCUDA_TRACE={}: {} {why}; nothing is recorded",
                    wanted.display(),
                    path.display()
                );
                return None;
            }
        };
        crate::log!(Info, "recording to {}", path.display());
        let recorder = Self {
            file,
            // The program may go elsewhere.
            path: std::path::absolute(&path).unwrap_or(path),
            began_ns,
            stacks: match config.trace_stacks {
                Stacks::None => None,
                Stacks::C => Some(stacks::Stacks::new(false)),
                Stacks::Python => Some(stacks::Stacks::new(true)),
            },
            words: words::Words::default(),
            late: late::Late::default(),
        };
        recorder.word(Word::Process, 0, &caller::command_line(usize::MAX));
        Some(recorder)
    }

    /// The file, for the thread that makes it longer.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the file was made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records memory that has a name, and is given to the program now.
    #[cold]
    pub fn named(
        &self,
        name: &Name,
        address: Address,
        bytes: u64,
        (device, context): (u32, Context),
    ) {
        let name = name.to_string();
        let tell = |number: u16| self.word(Word::Name, number.into(), &name);
        let number = self.words.name(&name, tell);
        let record = Record {
            address,
            bytes,
            context: context.0,
            name: number,
            device: device as u8,
            of_context: true,
            plain: true,
            ..blank(Kind::Alloc)
        };
        self.event(record, Caller::NOBODY);
    }

    /// Records what the plain driver gave to a request.
    pub fn plain_gave(&self, device: u32, request: &Request, address: Address, caller: Caller) {
        let record = Record {
            address,
            plain: true,
            ..asked(Kind::Alloc, device, request)
        };
        self.event(record, caller);
    }

    /// Records what a pool answered to a request. Torch is told that there is no
    /// memory where it is to give some back, too: it asks again.
    pub fn answered(
        &self,
        device: u32,
        request: &Request,
        answer: Result<Address, Refusal>,
        caller: Caller,
    ) {
        let record = match answer {
            Ok(address) => Record {
                address,
                ..asked(Kind::Alloc, device, request)
            },
            Err(Refusal::Driver(Code::OUT_OF_MEMORY)) => asked(Kind::Refused, device, request),
            Err(_) => return,
        };
        self.event(record, caller);
    }

    /// Records that torch has a page at this address from now on: on which of its
    /// streams, nobody says.
    pub fn mapped(&self, device: u32, address: Address, bytes: u64, caller: Caller) {
        let record = Record {
            address,
            ..page(Kind::Alloc, device, bytes)
        };
        self.event(record, caller);
    }

    /// Records that torch was told that there is no memory for a page.
    pub fn page_refused(&self, device: u32, bytes: u64, caller: Caller) {
        self.event(page(Kind::Refused, device, bytes), caller);
    }

    /// Records that a context ended.
    #[cold]
    pub fn context_ended(&self, context: Context) {
        let context = context.0;
        let record = Record {
            context,
            ..blank(Kind::ContextEnd)
        };
        self.event(record, Caller::NOBODY);
    }

    fn event(&self, record: Record, caller: Caller) {
        let record = self.by(record, caller);
        match self.file.claim(1) {
            Some(place) => {
                let time_ns = self.now();
                self.file
                    .write(place, &Record { time_ns, ..record }.encode(place));
            }
            None => self.file.lose(),
        }
    }

    /// With who asks. What is new of that is written first.
    fn by(&self, record: Record, caller: Caller) -> Record {
        if self.late.is_due() && self.file.has_room() {
            self.late
                .write(|word, number, text| self.has_written(word, number, text));
        }
        let thread = threads::number() as u32;
        if words::is_new_thread() {
            self.word(Word::Thread, thread, &words::thread_name());
        }
        let mut named = self.words.caller(caller, |number, name| {
            self.word(Word::Caller, number.into(), name);
        });
        let mut stack = 0;
        if let Some(stacks) = &self.stacks {
            let found = stacks.here(|number, text| self.word(Word::Stack, number, text));
            stack = found.number;
            if let (0, Some(module)) = (named, found.caller) {
                let of = Caller {
                    module,
                    ..Caller::NOBODY
                };
                named = self.words.caller(of, |number, name| {
                    self.word(Word::Caller, number.into(), name);
                });
            }
        }
        Record {
            thread,
            stack,
            caller: named,
            ..record
        }
    }

    /// Writes a word, now or later.
    #[cold]
    fn word(&self, word: Word, number: u32, text: &str) {
        if !self.has_written(word, number, text) {
            self.late.keep(word, number, text);
        }
    }

    /// Writes a word, in as many frames as it takes; false where there is no room.
    fn has_written(&self, word: Word, number: u32, text: &str) -> bool {
        let text = &text.as_bytes()[..text.len().min(MOST_TEXT)];
        let pieces = text.len().div_ceil(PIECE_BYTES).max(1) as u64;
        let Some(place) = self.file.claim(pieces) else {
            return false;
        };
        for at in 0..pieces {
            let rest = &text[at as usize * PIECE_BYTES..];
            let words = Piece::encode((word, number), at == 0, rest, place + at);
            self.file.write(place + at, &words);
        }
        true
    }

    fn now(&self) -> u64 {
        clock_ns() - self.began_ns
    }
}

/// What a request says.
fn asked(kind: Kind, device: u32, request: &Request) -> Record {
    let (uses, stream) = match request.order.stream() {
        Some(key) => (Use::Stream, key.stream.0),
        None => (Use::Any, 0),
    };
    Record {
        bytes: request.bytes,
        stream,
        context: request.context.0,
        device: device as u8,
        uses,
        of_context: request.owner == Owner::Context,
        ..blank(kind)
    }
}

fn page(kind: Kind, device: u32, bytes: u64) -> Record {
    Record {
        bytes,
        device: device as u8,
        page: true,
        ..blank(kind)
    }
}

fn blank(kind: Kind) -> Record {
    Record {
        time_ns: 0,
        kind,
        address: 0,
        bytes: 0,
        stream: 0,
        context: 0,
        thread: 0,
        stack: 0,
        caller: 0,
        name: 0,
        device: 0,
        uses: Use::Any,
        of_context: false,
        plain: false,
        page: false,
    }
}

fn clock_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
