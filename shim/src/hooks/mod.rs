//! The hooks, one file per family, and the list of them all. To add one,
//! declare it with [`hooks!`](crate::hooks!) in its family's file: that makes
//! the exported symbol, the substitution and the slot of the real function.
//! Then add its symbol to `exports.txt`.

pub mod asynchronous;
pub mod contexts;
pub mod copies;
pub mod foreign;
pub mod frees;
pub mod ipc;
pub mod mappings;
pub mod memory;
pub mod nodes;
pub mod pages;
pub mod peers;
pub mod pitch;
pub mod pointers;
pub mod pools;
pub mod query;
pub mod start;
pub mod streams;
pub mod waits;

use crate::hook::Hook;

/// Every hook.
pub fn all() -> impl Iterator<Item = &'static Hook> {
    const FAMILIES: [&[&Hook]; 20] = [
        crate::entry::lookup::HOOKS,
        start::HOOKS,
        memory::HOOKS,
        frees::HOOKS,
        pitch::HOOKS,
        asynchronous::HOOKS,
        pools::HOOKS,
        query::HOOKS,
        pointers::HOOKS,
        ipc::HOOKS,
        mappings::HOOKS,
        pages::CREATE,
        pages::HOOKS,
        streams::HOOKS,
        waits::HOOKS,
        peers::HOOKS,
        copies::HOOKS,
        nodes::HOOKS,
        contexts::HOOKS,
        foreign::HOOKS,
    ];
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}
