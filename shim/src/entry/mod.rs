//! Where a program's calls come in: the symbols that are exported beside the driver's own, and the
//! lookups through which our functions get in the place of the driver's. What such a function
//! then does is in `hooks`.

pub mod dlopen;
pub mod getenv;
pub mod lookup;
pub mod substitute;
pub mod tagged;
pub mod thunks;
