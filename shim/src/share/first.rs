//! The first request of a process. Connection, who asks and what for go out in
//! one go, or the last of them over a connection that was begun before (`early`),
//! and what has to be made anyway is made while the keeper answers: a new process
//! waits for one answer, not for three.
//!
//! No lock is held meanwhile, so another thread may connect, too: then that
//! connection is the process's, and what was asked here is taken back.

use std::time::Instant;

use memcuda_core::share::client::{Client, Dialled, Error as Broken};
use memcuda_core::share::protocol::{Reply, Request};

use super::line::Answer;
use super::who::{self, Heard};
use super::{Error, keeper};
use crate::engine::Engine;
use crate::engine::worker;

/// Asks over a connection of its own, which then is the process's; `None` where
/// there is one already, or none could be had: then nothing has happened.
pub fn ask(
    engine: &Engine,
    request: &Request,
    meanwhile: impl FnOnce(),
) -> Option<Result<Answer, Error>> {
    let begun = {
        let mut line = keeper::lock();
        let line = line.get_or_insert_default();
        if !line.may_begin() {
            return None;
        }
        line.begun.take()
    };
    let began = Instant::now();
    let talked = talk(engine, begun, request, meanwhile);
    let mut line = keeper::lock();
    let line = line.get_or_insert_default();
    if talked.is_err() && line.is_new() {
        line.hang_up();
    }
    let (mut client, heard, answer) = match talked {
        Ok(talked) => talked,
        Err(Broken::Refused(code, why)) => return Some(Err(Error::Refused(code, why))),
        Err(error) if !who::hangs(&error, began) => return None,
        Err(error) => {
            // It hangs: who asks is kept by it once.
            line.rest_after(began);
            return Some(Err(Error::Gone(error.to_string())));
        }
    };
    if line.is_new() {
        line.adopt(client, heard);
        line.count(request, &answer);
        return Some(answer);
    }
    if let Ok((Reply::Make { generation }, _)) = answer {
        // Whoever asks next may be told to make it: also this thread.
        let _ = client.call(Request::Abort { generation }, &[]);
    }
    None
}

/// Connects and asks; the answer, where one came, may be a refusal.
fn talk(
    engine: &Engine,
    begun: Option<Dialled>,
    request: &Request,
    meanwhile: impl FnOnce(),
) -> Result<(Client, Heard, Result<Answer, Error>), Broken> {
    let mut dialled = match begun {
        Some(begun) => begun,
        None => {
            let socket = who::socket(engine).map_err(|_| Broken::Lost)?;
            who::trusted(engine, &socket).map_err(|_| Broken::Lost)?;
            Client::dial(&socket, std::process::id(), &who::command(), &[])?
        }
    };
    dialled.ask(request.clone())?;
    worker::start();
    meanwhile();
    let asked = Instant::now();
    let (mut client, welcome) = dialled.welcome()?;
    let heard = Heard::of(welcome, None);
    let welcomed = asked.elapsed().as_micros();
    crate::log!(
        Debug,
        "the keeper's first word was waited for {welcomed} us"
    );
    let answer = match client.answer() {
        Ok(answer) => Ok(answer),
        Err(Broken::Refused(code, why)) => Err(Error::Refused(code, why)),
        Err(error) => return Err(error),
    };
    Ok((client, heard, answer))
}
