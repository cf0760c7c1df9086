//! What a client asks for: whether it may, whether there is room for it, and the answer. Nothing
//! here leaves before the end of the turn (`turn`).

pub mod access;
pub mod answer;
pub mod memory;
pub mod room;
pub mod rules;
