//! How an answer is waited for: awake at first; and by who has only so much time no longer
//! than that. Then it is passed over when it comes after all, and the connection stays as
//! it is.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Client, Error, next};
use crate::share::protocol::{Reply, Request};
use crate::share::wire::{self, Broken};
use crate::waiting::Waiting;

/// How long an answer is waited for awake.
const AWAKE: Duration = Duration::from_micros(500);
/// A keeper that is awake itself has answered by then.
const PROMPT: Duration = Duration::from_micros(30);
/// The shortest sleep there is.
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1,
};

impl Client {
    /// Waits without sleeping, for a moment at most: a keeper that is well answers
    /// in less time than a processor takes to fall asleep and to be woken.
    pub(super) fn wait_awake(&self) {
        let mut waiting = Waiting::begin();
        let none_yet = || matches!(wire::length_of_next(&self.socket), Err(Broken::Later));
        let mut napped = false;
        while none_yet() && waiting.lasted() < AWAKE {
            if napped || waiting.lasted() < PROMPT {
                waiting.step_aside();
            } else {
                // A keeper that was woken on this very processor does not get it by
                // a yield, which passes over who has run more than its share.
                let socket = PollFd::new(&self.socket, PollFlags::IN);
                let _ = poll(&mut [socket], Some(&NAP));
                napped = true;
            }
        }
    }

    /// Asks for what leaves nothing behind in the keeper, and waits so long for the answer;
    /// `None` where it has not come. As long as one is late nobody is asked so again.
    pub fn ask_for(
        &mut self,
        request: Request,
        patience: Duration,
    ) -> Result<Option<(Reply, Vec<OwnedFd>)>, Error> {
        let deadline = Instant::now() + patience;
        while self.late != 0 {
            self.hear_events()?;
            if self.late != 0 && !self.has_time(deadline)? {
                return Ok(None);
            }
        }
        self.send(request, &[])?;
        self.answered = next(self.answered);
        self.wait_awake();
        loop {
            if let Some(answer) = self.next_answer()? {
                return Ok(Some(answer));
            }
            if !self.has_time(deadline)? {
                self.late = self.answered;
                return Ok(None);
            }
        }
    }

    /// Waits for something to be heard; false where there is no time left for it.
    fn has_time(&self, deadline: Instant) -> Result<bool, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        Ok(!left.is_zero() && self.wait_for(PollFlags::IN, left)?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
    };

    use super::*;
    use crate::names::Name;
    use crate::share::protocol::{Code, Packet};

    fn listener(path: &Path) -> OwnedFd {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        socket
    }

    #[test]
    fn an_answer_that_comes_late_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k.sock");
        let listener = listener(&path);
        let mut client = Client::dial(&path, 1, "test", &[]).unwrap().client;
        let keeper = accept(&listener).unwrap();
        // Its introduction is number 1, and answered.
        client.answered = client.asked;
        let show = || Request::Show {
            name: Name::new("w").unwrap(),
        };
        let short = Duration::from_millis(1);
        assert!(client.ask_for(show(), short).unwrap().is_none());
        assert!(client.ask_for(show(), short).unwrap().is_none());
        let say = |number, body| wire::send(&keeper, &Packet { number, body }, &[]).unwrap();
        // Nothing was asked while it was late: the next one is number 3.
        say(2, Reply::Done);
        assert!(client.ask_for(show(), short).unwrap().is_none());
        say(3, Reply::Done);
        let refused = Reply::Failed {
            code: Code::NotFound,
            message: "none".to_owned(),
        };
        say(4, refused);
        let answer = client.call(show(), &[]).unwrap_err();
        assert_eq!(answer, Error::Refused(Code::NotFound, "none".to_owned()));
    }
}
