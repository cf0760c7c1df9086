//! Attached memory over the model driver.

use crate::config::Debug;
use crate::driver::model::Model;
use crate::driver::{Access, Code, Context, Driver, Handle, Stream};
use crate::pool::tests::{CONTEXT, key, on, pool};
use crate::pool::{Attachment, Grantee, Lack, NotOurs, Pool, Release, Settings};
use crate::units::MIB;
use std::os::fd::AsFd;

/// Handles of another process, as the driver gives them for its descriptors.
fn imported(pool: &Pool<Model>, sizes: &[u64]) -> Vec<(Handle, u64)> {
    let driver = pool.driver();
    let import = |&bytes: &u64| {
        let original = driver.create(0, bytes).unwrap();
        let descriptor = driver.export(original).unwrap();
        (driver.import(descriptor.as_fd()).unwrap(), bytes)
    };
    sizes.iter().map(import).collect()
}

fn attachment(handles: Vec<(Handle, u64)>, offset: u64, bytes: u64) -> Attachment {
    Attachment {
        handles,
        offset,
        bytes,
        context: CONTEXT,
        access: Access::Write,
        also: None,
        beside: None,
        opened: true,
    }
}

#[test]
fn attached_memory_is_a_block_that_nobody_is_lent_and_nobody_frees() {
    let pool = pool(Settings::default());
    let handles = imported(&pool, &[4 * MIB, 2 * MIB, 8 * MIB]);
    let at = pool.attach(attachment(handles, MIB, 9 * MIB)).unwrap();
    let found = pool.find(at + 9 * MIB - 1).unwrap();
    assert_eq!(
        (found.base, found.bytes, found.context),
        (at, 9 * MIB, CONTEXT)
    );
    assert!(found.attached && pool.contains(at));
    assert_eq!(pool.find(at - 1), None);
    assert_eq!(pool.find(at + 9 * MIB), None);
    assert_eq!(pool.free(at, Release::Complete), Err(NotOurs::Attached));
    assert_eq!(pool.export(at), None);

    let (shared, idle) = (pool.stats().shared_bytes, pool.idle());
    assert_eq!((shared, idle, pool.physical()), (14 * MIB, 0, 14 * MIB));
    pool.alloc(&on(10, 2 * MIB)).unwrap();
    assert_eq!(pool.physical(), 16 * MIB, "nothing of it was lent");
    pool.trim();
    assert_eq!(pool.stats().shared_bytes, 14 * MIB);

    assert_eq!(pool.detach(at + 512), Err(NotOurs::Interior));
    let gone = pool.detach(at).unwrap();
    assert_eq!((gone.base, gone.bytes), (at, 9 * MIB));
    assert_eq!(pool.detach(at), Err(NotOurs::Unknown));
    assert_eq!((pool.find(at), pool.physical()), (None, 2 * MIB));
    assert_eq!(pool.stats().shared_bytes, 0);
    // The originals are another process's, and the pool's own one is left.
    assert_eq!(pool.driver().leftovers(), (1, 4, 1));
}

#[test]
fn it_has_no_guard_words() {
    let pool = pool(Settings {
        debug: Debug::Canary,
        ..Settings::default()
    });
    let handles = imported(&pool, &[4 * MIB]);
    let at = pool.attach(attachment(handles, 0, 3 * MIB)).unwrap();
    assert_eq!(pool.find(at).unwrap().bytes, 3 * MIB);
    let own = pool.alloc(&on(10, 3 * MIB)).unwrap();
    assert_eq!(pool.find(own).unwrap().bytes, 3 * MIB);
    assert_eq!(pool.find(own + 3 * MIB), None);
}

#[test]
fn whatever_call_fails_nothing_of_an_attachment_is_left() {
    // The first call reserves, and where it fails less is asked for.
    for call in 1.. {
        let pool = pool(Settings::default());
        let handles = imported(&pool, &[2 * MIB, 4 * MIB]);
        let before = pool.driver().calls();
        pool.driver().fail_at(before + call, Code::OUT_OF_MEMORY);
        let attached = pool.attach(attachment(handles, 0, 6 * MIB));
        if attached.is_ok() {
            assert_eq!(call, 4, "reserve, two maps, access");
            break;
        }
        assert_eq!(attached, Err(Code::OUT_OF_MEMORY));
        let (_, handles, mappings) = pool.driver().leftovers();
        assert_eq!((handles, mappings, pool.physical()), (2, 0, 0));
        let handles = imported(&pool, &[2 * MIB]);
        assert!(pool.attach(attachment(handles, 0, 1)).is_ok());
    }
}

#[test]
fn an_allocation_that_leaves_its_handles_is_refused() {
    let pool = pool(Settings::default());
    for (offset, bytes) in [(0, 0), (0, 2 * MIB + 1), (u64::MAX, 2), (2 * MIB, 1)] {
        let handles = imported(&pool, &[2 * MIB]);
        let refused = pool.attach(attachment(handles, offset, bytes));
        assert_eq!(refused, Err(Code::INVALID_VALUE));
    }
    // Of each a handle is left, of which it was imported.
    let (_, handles, mappings) = pool.driver().leftovers();
    assert_eq!((handles, mappings), (4, 0));
}

#[test]
fn reading_only_holds_for_peers_and_a_device_of_its_own_keeps_its_access() {
    let pool = pool(Settings::default());
    let access = |at, device| pool.driver().access(at, device);
    let peer = |device| Grantee::Contexts {
        reader: Context(device),
        owner: CONTEXT,
    };
    pool.grant(1, peer(1)).unwrap();
    let only_read = Attachment {
        access: Access::Read,
        also: Some(3),
        ..attachment(imported(&pool, &[2 * MIB]), 0, 2 * MIB)
    };
    let at = pool.attach(only_read).unwrap();
    pool.grant(2, peer(2)).unwrap();
    pool.grant(3, peer(3)).unwrap();
    for device in 0..4 {
        assert_eq!(access(at, device), Access::Read, "device {device}");
    }
    assert_eq!(pool.access(at + MIB), Some(Access::Read));
    let own = pool.alloc(&on(10, MIB)).unwrap();
    assert_eq!(pool.access(own), Some(Access::Write));
    pool.revoke(1, peer(1));
    pool.revoke(3, peer(3));
    assert_eq!((access(at, 1), access(at, 3)), (Access::None, Access::Read));
}

#[test]
fn a_device_beside_the_memory_reaches_it_if_it_can() {
    // Without a failure, without a link between the two, and without room for page tables.
    for (fails, attached, reached) in [
        (None, true, Access::Write),
        (Some(Code::INVALID_DEVICE), true, Access::None),
        (Some(Code::OUT_OF_MEMORY), false, Access::None),
    ] {
        let pool = pool(Settings::default());
        let memory = Attachment {
            beside: Some(3),
            ..attachment(imported(&pool, &[2 * MIB]), 0, 2 * MIB)
        };
        if let Some(code) = fails {
            // Behind the reservation, the mapping and the access of its own device.
            pool.driver().fail_at(pool.driver().calls() + 3, code);
        }
        let at = pool.attach(memory);
        assert_eq!(at.is_ok(), attached, "{fails:?}: {at:?}");
        if let Ok(at) = at {
            let access = |device| pool.driver().access(at, device);
            assert_eq!(
                (access(0), access(3)),
                (Access::Write, reached),
                "{fails:?}"
            );
        }
    }
}

#[test]
fn a_rehearsal_leaves_nothing_whatever_call_fails() {
    // Create, export, import, release; map, access, unmap, release.
    for call in 0..8 {
        let pool = pool(Settings::default());
        pool.reserve_ahead();
        let addresses = || pool.lock().arena.free_bytes();
        let (before, free) = (pool.driver().calls(), addresses());
        pool.driver().fail_at(before + call, Code::OUT_OF_MEMORY);
        pool.rehearse();
        assert!(pool.driver().calls() > before + call, "{call} is made");
        let (reservations, handles, mappings) = pool.driver().leftovers();
        // A handle that cannot be released, or a mapping that cannot be undone.
        let lost = match call {
            3 | 7 => (1, 0),
            6 => (1, 1),
            _ => (0, 0),
        };
        assert_eq!((handles, mappings), lost, "call {call}");
        assert_eq!(free - addresses(), lost.1 as u64 * 2 * MIB, "call {call}");
        assert_eq!((reservations, pool.physical()), (1, 0));
        let imported = imported(&pool, &[2 * MIB]);
        assert!(pool.attach(attachment(imported, 0, 1)).is_ok());
    }
}

#[test]
fn what_is_not_unmapped_keeps_its_addresses() {
    let pool = pool(Settings::default());
    let free = || pool.lock().arena.free_bytes();
    for (fails, back) in [(false, 2 * MIB), (true, 0)] {
        let handles = imported(&pool, &[2 * MIB]);
        let at = pool.attach(attachment(handles, 0, 2 * MIB)).unwrap();
        let before = free();
        if fails {
            let next = pool.driver().calls();
            pool.driver().fail_at(next, Code::UNKNOWN);
        }
        assert!(pool.detach(at).is_ok());
        assert_eq!(free(), before + back);
    }
}

/// The device has it once: it counts for who made it.
#[test]
fn a_limit_counts_what_was_made_here_and_not_what_was_opened() {
    let pool = pool(Settings {
        limit: Some(16 * MIB),
        ..Settings::default()
    });
    let attach = |opened| {
        let handles = imported(&pool, &[12 * MIB]);
        let made = Attachment {
            opened,
            ..attachment(handles, 0, 12 * MIB)
        };
        pool.attach(made).unwrap()
    };
    let fits = |bytes| {
        let at = pool.alloc(&on(10, bytes));
        if let Ok(at) = at {
            pool.free(at, Release::Complete).unwrap();
            pool.trim();
        }
        at.is_ok()
    };
    let opened = [attach(true), attach(true)];
    assert_eq!((pool.physical(), pool.counted()), (24 * MIB, 0));
    assert!(fits(16 * MIB) && !fits(18 * MIB));
    let made = attach(false);
    assert_eq!(pool.counted(), 12 * MIB);
    assert!(fits(4 * MIB) && !fits(6 * MIB));
    for at in opened {
        pool.detach(at).unwrap();
    }
    assert!(fits(4 * MIB) && !fits(6 * MIB));
    pool.detach(made).unwrap();
    assert_eq!((pool.physical(), pool.counted()), (0, 0));
    assert!(fits(16 * MIB));
}

#[test]
fn what_is_idle_makes_room_for_its_mappings() {
    let pool = pool(Settings::default());
    let _lent = pool.alloc(&on(10, 2 * MIB)).unwrap();
    let idle = pool.alloc(&on(10, 4 * MIB)).unwrap();
    pool.free(idle, Release::Stream(key(10))).unwrap();
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.driver().allow_mappings(pool.driver().leftovers().2);
    let attach = |also| {
        let handles = imported(&pool, &[4 * MIB]);
        pool.attach(Attachment {
            also,
            ..attachment(handles, 0, 4 * MIB)
        })
    };
    let waits = pool.stats().host_waits;
    let first = attach(None).unwrap();
    assert!(pool.driver().mapped(first).is_some());
    assert_eq!(pool.stats().host_waits, waits + 1, "for what runs on it");
    pool.driver().allow_mappings(2);
    for also in [None, Some(1)] {
        assert_eq!(attach(also), Err(Code::OUT_OF_MEMORY));
    }
    assert_eq!(pool.idle(), 0, "nothing is left to make room");
    // What is lent, what is attached, and of which each was imported.
    assert_eq!(pool.driver().leftovers().1, 1 + 1 + 3);
}

/// The reader's device may have idle memory of the process's own.
#[test]
fn where_page_tables_lack_room_is_asked_for_as_long_as_some_is_made() {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let settings = Settings {
        starving: Some(Box::new({
            let asked = std::sync::Arc::clone(&asked);
            move |_, _, lack| {
                asked.lock().unwrap().push(lack);
                asked.lock().unwrap().len() < 2
            }
        })),
        ..Settings::default()
    };
    let pool = pool(settings);
    pool.grant(1, Grantee::MemoryPool).unwrap();
    pool.reserve_ahead();
    for served in [true, false] {
        asked.lock().unwrap().clear();
        let handles = imported(&pool, &[4 * MIB]);
        // Behind two more calls: mapped, and opened to its own device.
        let calls = pool.driver().calls();
        pool.driver().fail_at(calls + 2, Code::OUT_OF_MEMORY);
        if !served {
            asked.lock().unwrap().push(Lack::Memory);
        }
        let attached = pool.attach(attachment(handles, 0, 4 * MIB));
        assert_eq!(attached.is_ok(), served, "{attached:?}");
        assert_eq!(asked.lock().unwrap().last(), Some(&Lack::Tables(1)));
    }
}
