//! The model's books of memory, and in which order the work on its streams runs; what is over
//! by when is the test's to say. Ends the test where a mapping goes under work, where an event
//! is recorded on a stream that captures, or for all of a context that does, or where one is
//! asked about that ended with its context.

use super::world::World;
use crate::driver::model::Model;
use crate::driver::{
    Access, Address, Capture, Code, Context, Driver, Event, Handle, Result, Stream,
};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

pub struct Device {
    memory: Model,
    world: Mutex<World>,
}

impl Device {
    pub fn new(bytes: u64, seed: u64) -> Self {
        Self {
            memory: Model::new(bytes),
            world: Mutex::new(World::new(seed)),
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Handles and mappings that exist.
    pub fn leftovers(&self) -> (usize, usize) {
        let (_, handles, mappings) = self.memory.leftovers();
        (handles, mappings)
    }
}

impl Driver for Device {
    fn granularity(&self, device: u32) -> Result<u64> {
        self.memory.granularity(device)
    }
    fn memory_info(&self, device: u32) -> Result<(u64, u64)> {
        self.memory.memory_info(device)
    }
    fn reserve(&self, bytes: u64) -> Result<Address> {
        self.memory.reserve(bytes)
    }
    fn free_reservation(&self, at: Address, bytes: u64) -> Result<()> {
        self.memory.free_reservation(at, bytes)
    }
    fn create(&self, device: u32, bytes: u64) -> Result<Handle> {
        self.world().may_fail()?;
        self.memory.create(device, bytes)
    }
    fn release(&self, handle: Handle) -> Result<()> {
        match self.world().is_mapped(handle) {
            // By an unmapping that failed: the driver keeps it.
            true => Ok(()),
            false => self.memory.release(handle),
        }
    }
    fn export(&self, handle: Handle) -> Result<OwnedFd> {
        self.memory.export(handle)
    }
    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Handle> {
        self.memory.import(descriptor)
    }

    fn map(&self, at: Address, bytes: u64, handle: Handle) -> Result<()> {
        self.world().may_fail()?;
        let mapped = self.memory.map(at, bytes, handle);
        assert_eq!(mapped, Ok(()), "where something is mapped");
        self.world().mapped(at, bytes, handle);
        Ok(())
    }

    fn set_access(&self, at: Address, bytes: u64, device: u32, access: Access) -> Result<()> {
        self.world().may_fail()?;
        self.memory.set_access(at, bytes, device, access)
    }

    fn unmap(&self, at: Address, bytes: u64) -> Result<()> {
        self.world().may_fail()?;
        self.memory.unmap(at, bytes)?;
        self.world().unmapped(at, bytes);
        Ok(())
    }

    fn create_event(&self, context: Context) -> Result<Event> {
        self.world().check(context)?;
        self.world().may_fail()?;
        let event = self.memory.create_event(context)?;
        self.world().event_made(event, context);
        Ok(event)
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        self.world().event_gone(event);
        Ok(())
    }

    fn record(&self, event: Event, context: Context, stream: Stream) -> Result<()> {
        let mut world = self.world();
        world.check(context)?;
        world.may_fail()?;
        let lane = world.lane(context, stream);
        assert!(!world.is_capturing(lane), "recorded in a capture");
        let reached = world.reached(lane);
        if stream == Stream::LEGACY {
            // A barrier, to its own later work as well.
            world.order(lane, &reached);
        }
        world.record(event, context, reached);
        Ok(())
    }

    fn record_context(&self, event: Event, context: Context) -> Result<()> {
        let mut world = self.world();
        if !world.has_context_events {
            return Err(Code::NOT_FOUND);
        }
        world.check(context)?;
        assert!(!world.captures_in(context), "a capture is ended");
        world.may_fail()?;
        let reached = world.reached_in(context);
        world.record(event, context, reached);
        Ok(())
    }

    fn is_complete(&self, event: Event) -> Result<bool> {
        let world = self.world();
        world.check_event(event)?;
        Ok(world.is_over(world.clock(event)))
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let mut world = self.world();
        world.check_event(event)?;
        world.may_fail()?;
        let clock = world.clock(event).clone();
        world.finish(&clock);
        Ok(())
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let mut world = self.world();
        world.check(context)?;
        world.check_event(event)?;
        world.may_fail()?;
        let lane = world.lane(context, stream);
        assert!(!world.is_capturing(lane), "a wait in a capture");
        let clock = world.clock(event).clone();
        world.order(lane, &clock);
        Ok(())
    }

    fn wait_context(&self, _: Context, _: Event) -> Result<()> {
        Err(Code::NOT_FOUND)
    }

    fn capture(&self, context: Context, stream: Stream) -> Result<Capture> {
        let mut world = self.world();
        world.check(context)?;
        let lane = world.lane(context, stream);
        Ok(match world.is_capturing(lane) {
            true => Capture::Active,
            false => Capture::None,
        })
    }

    fn check(&self, context: Context) -> Result<()> {
        self.world().check(context)
    }

    fn synchronize_context(&self, context: Context) -> Result<()> {
        let captures = self.world().captures_in(context);
        assert!(!captures, "a capture is ended");
        self.synchronize_by_free(context)
    }

    fn synchronize_by_free(&self, context: Context) -> Result<()> {
        let mut world = self.world();
        world.check(context)?;
        world.may_fail()?;
        let reached = world.reached_in(context);
        world.finish(&reached);
        Ok(())
    }

    fn fill(&self, _: Context, _: Stream, _: Address, _: u32, _: u64) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: Context, _: Address, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        Ok(())
    }
}
