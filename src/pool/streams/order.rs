//! Puts a stream's later work behind uses of the bytes that it is about to get: its own through
//! another address, and other streams'. Waits for nothing on the host.

use super::marks::Moment;
use super::{StreamId, Streams, Use};
use crate::driver::{Code, Driver, Result, Stream};

impl Streams {
    /// Does a use that may run, through another address on the same stream, need an edge?
    /// A kernel that became resident early (programmatic dependent launch)
    /// may otherwise read what lay there before the last write.
    pub fn needs_edge(&self, last: Use, alias: u32) -> bool {
        last.alias != alias && last.seq > self.progress(last.stream).edge
    }

    /// Orders the later work of stream `id` behind its own earlier work, up to place `after`
    /// at least. `NOT_READY` where that cannot be done now.
    pub fn make_edge<D: Driver>(
        &mut self,
        driver: &D,
        id: StreamId,
        after: u64,
        late: bool,
    ) -> Result<()> {
        if !late && self.progress(id).key.stream == Stream::LEGACY {
            // One more event would be a barrier, which an allocation is not; each free
            // there left one.
            let marked = self.marked(id).filter(|seq| *seq >= after);
            self.progress_mut(id).edge = marked.ok_or(Code::NOT_READY)?;
            return Ok(());
        }
        let marked = self.mark(driver, id, Moment::Later).map_err(unready)?;
        let (seq, event) = marked.ok_or(Code::NOT_READY)?;
        let stream = self.progress_mut(id);
        let waits = driver.wait(stream.key.context, stream.key.stream, event);
        waits.map_err(unready)?;
        stream.edge = seq;
        Ok(())
    }

    /// Orders the later work of `waiter` behind a use. `NOT_READY` where no event followed the
    /// use (and it may be no `late` one, or none can be had), where it cannot be waited for now,
    /// or where it turns out that its context is broken: neither is an error of the waiter's.
    pub fn order_behind<D: Driver>(
        &mut self,
        driver: &D,
        waiter: StreamId,
        last: Use,
        late: bool,
    ) -> Result<()> {
        let (user, waiter) = (self.context(last.stream), self.progress(waiter).key);
        let ordered = match self.event_of(driver, last, late) {
            Ok(_) if self.is_done(last) => Ok(()),
            Ok(Some(event)) => {
                let waits = driver.wait(waiter.context, waiter.stream, event);
                waits.map_err(unready)
            }
            Ok(None) => Err(Code::NOT_READY),
            Err(code) => Err(unready(code)),
        };
        let broken = ordered.is_err_and(Code::is_sticky);
        if broken && user != waiter.context && driver.check(waiter.context).is_ok() {
            self.health.notice(user, ordered);
            return Err(Code::NOT_READY);
        }
        ordered
    }
}

/// What keeps a stream from being put in order is the request's answer only where it stays with
/// the context; else other memory may serve.
fn unready(code: Code) -> Code {
    match code.is_sticky() {
        true => code,
        false => Code::NOT_READY,
    }
}
