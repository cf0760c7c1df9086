//! The connections: one request each, a thread each, no more than a bounded
//! number at once, none for longer than a bounded time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::http::{self, Answer, Head, MOST_HEAD, Status};

/// Most connections at once.
const MOST: usize = 64;
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may read nothing of its answer.
const SLOW: Duration = Duration::from_secs(10);

/// What answers: the bytes of a head.
pub type Handler = dyn Fn(Head<'_>) -> Answer + Send + Sync;

/// Serves until the process ends.
pub fn serve(listener: &TcpListener, handler: Arc<Handler>) -> io::Result<()> {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The client hung up; or there is no descriptor, for a moment.
            Err(error) => {
                tracing::debug!("no connection: {error}");
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let seat = Seat::take(&busy);
        let Some(seat) = seat else {
            tracing::debug!("refused: too many connections at once");
            let _ = stream.set_nonblocking(true);
            // What was not read would make the system drop the answer.
            let _ = (&stream).read(&mut [0; MOST_HEAD]);
            let full = Answer::refused(Status::Unavailable, "too many connections at once");
            let _ = full.write(&mut &stream, true);
            continue;
        };
        let handler = handler.clone();
        let thread = std::thread::Builder::new().name("web".to_owned());
        // Without a thread the connection is closed.
        let _ = thread.spawn(move || {
            let _seat = seat;
            let _ = attend(stream, &*handler);
        });
    }
}

struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(busy: &Arc<AtomicUsize>) -> Option<Self> {
        let seat = Self(busy.clone());
        (busy.fetch_add(1, Ordering::Relaxed) < MOST).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn attend(mut stream: TcpStream, handler: &Handler) -> io::Result<()> {
    stream.set_write_timeout(Some(SLOW))?;
    stream.set_nodelay(true)?;
    let begin = Instant::now();
    let mut bytes = Vec::with_capacity(1024);
    let (answer, body) = loop {
        match http::read(&bytes) {
            Head::Part => {}
            head => {
                let body = !matches!(&head, Head::Whole(request) if request.head);
                break (handler(head), body);
            }
        }
        let left = PATIENCE.saturating_sub(begin.elapsed());
        let mut room = [0; 1024];
        let count = match left.is_zero() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => {
                stream.set_read_timeout(Some(left))?;
                let most = room.len().min(MOST_HEAD - bytes.len());
                stream.read(&mut room[..most])
            }
        };
        match count {
            Ok(0) => return Ok(()),
            Ok(count) => bytes.extend(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                break (Answer::refused(Status::Timeout, ""), true);
            }
            Err(error) => return Err(error),
        }
    };
    // Not what was asked for: it may hold the token.
    tracing::debug!("answered: {:?}", answer.status);
    answer.write(&mut io::BufWriter::new(&stream), body)?;
    close(stream)
}

/// Closes so that the answer arrives: what the client still sends would else make
/// the system drop it.
fn close(mut stream: TcpStream) -> io::Result<()> {
    stream.flush()?;
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut room = [0; 4096];
    for _ in 0..16 {
        match stream.read(&mut room) {
            Ok(1..) => {}
            _ => break,
        }
    }
    Ok(())
}
