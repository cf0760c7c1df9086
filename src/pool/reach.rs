//! How far a request goes for free bytes, and what is tried next where that was not enough.
//! Looks for nothing itself.

use super::request::Order;
use crate::driver::Stream;

/// Which free bytes a request may get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those that its stream can be ordered behind as they were freed.
    Ordered,
    /// Those that are ready. Of the others some can only be ordered behind what their stream
    /// was given since, which the program did not ask for; or not at all, beside a capture. They
    /// are a reason to grow.
    Ready,
    /// Those whose uses are over: its own stream's, too, could not be put in order.
    Over,
    /// All, since nothing can grow: it is ordered behind whatever it must.
    Late,
}

impl Reach {
    /// What is tried next where bytes were not ready, or there were none.
    pub fn after(self, unready: bool, order: &Order) -> Option<Self> {
        match (self, order) {
            (Self::Ordered, _) if unready => Some(Self::Ready),
            (Self::Ready, _) if unready => Some(Self::Over),
            (Self::Late, _) => None,
            (_, Order::Stream(key)) if !unready && !self.goes_behind_others(key.stream) => {
                Some(Self::Late)
            }
            _ => None,
        }
    }

    /// May a stream be ordered behind another one? For the legacy default stream that is a
    /// barrier between all blocking streams, which the driver's allocation is not.
    pub fn goes_behind_others(self, stream: Stream) -> bool {
        match self {
            Self::Ordered => stream != Stream::LEGACY,
            Self::Ready | Self::Over => false,
            Self::Late => true,
        }
    }
}
