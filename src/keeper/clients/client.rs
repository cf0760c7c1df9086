//! A connection, from its first packet on: greets, introduces itself, asks. Says
//! what a packet means at this point; what follows from it is `answer`'s.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::keeper::Refusal;
use crate::keeper::clients::process::{Peer, Watch};
use crate::share::protocol::{Code, Hello, NEWEST, OLDEST, Packet, Request};
use crate::share::wire;

/// How long a connection may take to introduce itself.
pub const COURTESY: Duration = Duration::from_secs(5);
/// Packets without sense that are answered before the connection is closed.
const MOST_GARBLED: u32 = 16;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The versions it speaks.
    Hello,
    /// Who it is.
    Introduce,
    /// More leases.
    Leases,
    /// Any request.
    Ready,
}

/// One of them.
pub struct Connection {
    /// Never blocks.
    pub socket: Rc<OwnedFd>,
    /// Tells when the process has ended.
    pub watch: Option<Watch>,
    /// What the kernel says of it.
    pub peer: Peer,
    /// What comes next.
    pub stage: Stage,
    /// Did it say that its process comes back?
    pub comes_back: bool,
    garbled: u32,
}

/// What a packet is.
#[derive(Debug)]
pub enum Said {
    /// Nothing to be answered.
    Nothing,
    /// A request, and its number.
    Request(u32, Request),
    /// Something that is refused; where `close`, nothing more is heard.
    Wrong {
        /// Of the request; 1 where that is not known.
        number: u32,
        /// Why.
        refusal: Refusal,
        /// Is that the end?
        close: bool,
    },
}

impl Connection {
    /// A new one.
    pub fn new(socket: OwnedFd, peer: Peer) -> Self {
        Self {
            socket: Rc::new(socket),
            watch: None,
            peer,
            stage: Stage::Hello,
            comes_back: false,
            garbled: 0,
        }
    }

    /// Has the other side closed it? What it sent before can be read still.
    pub fn is_left(&self) -> bool {
        let mut looked = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec::default();
        poll(&mut looked, Some(&now)) == Ok(1)
    }

    /// What this packet is, at this point.
    pub fn understand(&mut self, bytes: &[u8]) -> Said {
        if self.stage == Stage::Hello {
            return self.greet(bytes);
        }
        let Ok(Packet { number, body }) = wire::understand::<Packet<Request>>(bytes) else {
            return self.garbled(bytes);
        };
        let introduces = matches!(body, Request::Introduce { .. });
        let more = matches!(body, Request::Leases { .. });
        let fits = match self.stage {
            Stage::Hello | Stage::Introduce => introduces,
            // Or it does not go on.
            Stage::Leases => more || body == Request::ComeBack,
            Stage::Ready => !introduces && !more,
        };
        if number == 0 || !fits {
            let message = "a request out of order: introduce yourself once, then ask";
            return wrong(number.max(1), Refusal::invalid(message.to_owned()), true);
        }
        Said::Request(number, body)
    }

    fn greet(&mut self, bytes: &[u8]) -> Said {
        let Some(hello) = Hello::from_bytes(bytes) else {
            let message = "this is a memcuda keeper, and that is not how one greets it";
            return wrong(1, Refusal::invalid(message.to_owned()), true);
        };
        if hello.agree().is_none() {
            let message = format!(
                "the client speaks versions {} to {}, the keeper {OLDEST} to {NEWEST}",
                hello.oldest, hello.newest
            );
            return wrong(1, Refusal::new(Code::Version, message), true);
        }
        self.stage = Stage::Introduce;
        Said::Nothing
    }

    /// A packet of a newer client, or of none: its boundaries are sure, so that
    /// the next one may make sense.
    fn garbled(&mut self, bytes: &[u8]) -> Said {
        self.garbled += 1;
        let number = postcard::take_from_bytes::<u32>(bytes).map_or(0, |(number, _)| number);
        let close = self.garbled > MOST_GARBLED || number == 0 || self.stage != Stage::Ready;
        let message = format!("a packet of {} bytes is not understood", bytes.len());
        wrong(number.max(1), Refusal::invalid(message), close)
    }
}

fn wrong(number: u32, refusal: Refusal, close: bool) -> Said {
    Said::Wrong {
        number,
        refusal,
        close,
    }
}

/// How much of a turn a request may take up: what looks at everything counts
/// for many that look at one thing.
pub fn weight(request: &Request) -> u32 {
    match request {
        Request::List { .. } | Request::Status | Request::Collect { .. } => 8,
        Request::Introduce { .. } | Request::Leases { .. } | Request::GiveUp { .. } => 8,
        _ => 1,
    }
}
