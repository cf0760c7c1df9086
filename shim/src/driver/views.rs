//! The views of a device's primary context (green contexts): which there are, and of which
//! context. The driver's own memory is the primary context's, also while such a view is
//! current. Calls no driver.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::driver::Context;
use memcuda_core::lock;

/// The views of one device.
#[derive(Default)]
pub struct Views {
    /// Was there ever one?
    ever: AtomicBool,
    /// Each view, and the context it is of.
    live: RwLock<Vec<(Context, Context)>>,
}

impl Views {
    /// A view may be there from now on; which one, the driver may not have told.
    pub fn may_begin(&self) {
        self.ever.store(true, Ordering::Release);
    }

    /// Was there ever one?
    pub fn were_there(&self) -> bool {
        self.ever.load(Ordering::Acquire)
    }

    /// A view is there; its handle may have been an ended one's.
    pub fn begins(&self, view: Context, whole: Context) {
        let mut live = lock::write(&self.live);
        live.retain(|(its, _)| *its != view);
        live.push((view, whole));
    }

    /// A view is about to end: its handle may soon be another context's. The context
    /// that it was of, where that is known.
    pub fn ends(&self, view: Context) -> Option<Context> {
        let mut live = lock::write(&self.live);
        let place = live.iter().position(|(its, _)| *its == view)?;
        Some(live.swap_remove(place).1)
    }

    /// The context that a view is of; of any other context itself.
    pub fn whole(&self, context: Context) -> Context {
        if !self.were_there() {
            return context;
        }
        let live = lock::read(&self.live);
        let view = live.iter().find(|(its, _)| *its == context);
        view.map_or(context, |(_, whole)| *whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_of_its_context_until_it_ends() {
        let (views, context) = (Views::default(), Context);
        assert!(!views.were_there());
        views.may_begin();
        views.begins(context(1), context(7));
        views.begins(context(2), context(7));
        assert_eq!(views.whole(context(1)), context(7));
        assert_eq!(views.ends(context(1)), Some(context(7)));
        assert_eq!(views.ends(context(1)), None);
        assert_eq!(views.whole(context(1)), context(1));
        assert_eq!(views.whole(context(2)), context(7));
        // A handle that came back.
        views.begins(context(2), context(8));
        assert_eq!(views.whole(context(2)), context(8));
        assert!(views.were_there());
    }
}
