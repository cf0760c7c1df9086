//! The functions of `include/memcuda.h`. Each is a thin shell: it reads what the
//! program passed, asks `names` or the keeper, and turns what came of it into a
//! result. A panic is a result, too; nothing of the program's is written where a
//! function fails.

mod directory;
mod dlpack;
mod info;
mod memory;
mod options;
mod outcome;
mod place;
mod versions;
