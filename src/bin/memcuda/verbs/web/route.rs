//! What is behind each path. There are no files: a path that is not in the list
//! is not found.

use memcuda::epoch::now_us;
use serde::Serialize;

use super::access::Access;
use super::history::{Event, SAMPLES};
use super::http::{Answer, Head, Request, Status};
use super::watch::Watch;
use super::{metrics, page};
use crate::names::entry::Object;
use crate::survey::{Key, Rates, Row, Seen};

/// Most names of one answer.
const MOST_NAMES: u64 = 500;
/// Most pools of one answer of samples.
const MOST_POOLS: usize = 16;

/// Answers what arrived.
pub fn answer(head: Head<'_>, access: &Access, watch: &Watch) -> Answer {
    let request = match head {
        Head::Whole(request) => request,
        Head::Part => return Answer::refused(Status::BadRequest, ""),
        Head::Refused(status) => return Answer::refused(status, ""),
    };
    let cookie = match access.check(&request) {
        Ok(cookie) => cookie,
        Err(answer) => return answer,
    };
    let mut answer = match request.path {
        "/" => page::answer(),
        "/api/now" => of_seen(watch, now),
        "/api/samples" => samples(&request, watch),
        "/api/map" => of_seen(watch, |_, seen| map(&request, seen, watch)),
        "/api/names" => names(&request, watch),
        "/api/events" => events(&request, watch),
        "/metrics" => of_seen(watch, |_, seen| {
            let text = metrics::text(seen, &watch.names());
            Answer::found(metrics::KIND, text.into_bytes())
        }),
        _ => Answer::refused(
            Status::NotFound,
            "there is no such page; / is the view, /metrics the numbers",
        ),
    };
    answer.headers.extend(cookie);
    answer
}

#[derive(Serialize)]
struct Now<'a> {
    schema: &'static str,
    version: &'static str,
    time_ms: u64,
    samples: usize,
    pools: Vec<Pool<'a>>,
    /// Processes that cannot be read, and why.
    unread: &'a [(u32, String)],
}

#[derive(Serialize)]
struct Pool<'a> {
    pool: String,
    hit_share: Option<f64>,
    #[serde(flatten)]
    row: &'a Row,
}

/// How a pool is called in queries.
fn called(row: &Row) -> String {
    format!("{}-{}-{}", row.pid, row.counters.ordinal, row.page)
}

/// The pool that is called so.
fn key(name: &str) -> Option<Key> {
    let mut numbers = name.splitn(3, '-');
    let pid = numbers.next()?.parse().ok()?;
    let ordinal = numbers.next()?.parse().ok()?;
    Some((numbers.next()?.parse().ok()?, pid, ordinal))
}

/// An answer of the last look; without one there are no figures, not those of nobody.
fn of_seen(watch: &Watch, answer: impl FnOnce(u64, &Seen) -> Answer) -> Answer {
    match watch.seen() {
        Ok((time_ms, seen)) => answer(time_ms, &seen),
        Err(why) => Answer::refused(Status::Unavailable, &why),
    }
}

fn now(time_ms: u64, seen: &Seen) -> Answer {
    let pool = |row| Pool {
        pool: called(row),
        hit_share: row.rates.as_ref().and_then(Rates::hit_share),
        row,
    };
    Answer::json(&Now {
        schema: "memcuda.web/1",
        version: env!("CARGO_PKG_VERSION"),
        time_ms,
        samples: SAMPLES,
        pools: seen.rows.iter().map(pool).collect(),
        unread: &seen.unread,
    })
}

/// Of each pool its samples, as columns.
#[derive(Serialize, Default)]
struct Columns {
    pool: String,
    time_ms: Vec<u64>,
    live: Vec<u64>,
    pending: Vec<u64>,
    idle: Vec<u64>,
    physical: Vec<u64>,
}

fn samples(request: &Request<'_>, watch: &Watch) -> Answer {
    let wanted = request.query("pools").unwrap_or_default();
    let after_ms = request.number("after_ms").unwrap_or(0);
    let history = watch.history();
    let mut pools = Vec::new();
    for name in wanted
        .split(',')
        .filter(|it| !it.is_empty())
        .take(MOST_POOLS)
    {
        let Some(key) = key(name) else {
            return Answer::refused(
                Status::BadRequest,
                "pools is PID-DEVICE-PAGE, as /api/now says",
            );
        };
        let mut columns = Columns {
            pool: name.to_owned(),
            ..Columns::default()
        };
        for sample in history.samples(&key, after_ms) {
            columns.time_ms.push(sample.time_ms);
            columns.live.push(sample.live);
            columns.pending.push(sample.pending);
            columns.idle.push(sample.idle);
            columns.physical.push(sample.physical);
        }
        pools.push(columns);
    }
    drop(history);
    Answer::json(&pools)
}

fn map(request: &Request<'_>, seen: &Seen, watch: &Watch) -> Answer {
    let name = request.query("pool").unwrap_or_default();
    // Only what was seen is asked, not any process.
    let Some(row) = seen.rows.iter().find(|row| called(row) == name) else {
        let why = "that process has ended, or has no pool on that device".to_owned();
        return Answer::json(&Without { why });
    };
    match watch.map(row.pid, row.counters.ordinal) {
        Ok(map) => Answer::json(&*map),
        Err(why) => Answer::json(&Without { why }),
    }
}

#[derive(Serialize)]
struct Page<'a> {
    nobody: Option<String>,
    /// Names that fit the filter, and their bytes.
    total: usize,
    mapped_bytes: u64,
    from: usize,
    names: Vec<Object<'a>>,
}

fn names(request: &Request<'_>, watch: &Watch) -> Answer {
    let filter = request.query("filter").unwrap_or_default();
    let from = request.number("from").unwrap_or(0);
    let count = request.number("count").unwrap_or(100).min(MOST_NAMES);
    let names = watch.names();
    let mut found = names.fitting(&filter);
    if request.query("sort").as_deref() == Some("size") {
        found.sort_by_key(|it| std::cmp::Reverse(it.mapped));
    }
    // What is asked for may lie behind the end: then the last page is shown.
    let last = (found.len() as u64).saturating_sub(1) / count.max(1) * count;
    let from = from.min(last) as usize;
    let shown = found.iter().skip(from).take(count as usize);
    Answer::json(&Page {
        nobody: names.nobody.clone(),
        total: found.len(),
        mapped_bytes: found.iter().map(|it| it.mapped).sum(),
        from,
        names: shown
            .map(|it| Object::new(it, now_us()).without_handle())
            .collect(),
    })
}

#[derive(Serialize)]
struct Events<'a> {
    changes: u64,
    /// The newest first; none where nothing changed.
    events: Option<Vec<&'a Event>>,
}

fn events(request: &Request<'_>, watch: &Watch) -> Answer {
    let history = watch.history();
    let changes = history.changes();
    let known = request.number("changes") == Some(changes);
    Answer::json(&Events {
        changes,
        events: (!known).then(|| history.events().collect()),
    })
}

/// Why there is no map: an answer like others, as it is nobody's mistake.
#[derive(Serialize)]
struct Without {
    why: String,
}

#[cfg(test)]
mod tests {
    use super::super::access::Token;
    use super::super::http::read;
    use super::*;
    use crate::random::Random;

    fn ask(text: &str, access: &Access, watch: &Watch) -> (Status, Vec<u8>) {
        let answer = answer(read(text.as_bytes()), access, watch);
        (answer.status, answer.body)
    }

    fn open(token: Option<&str>) -> Access {
        let token = token.map(|it| Token::new(it).unwrap());
        Access::new("127.0.0.1:1".parse().unwrap(), &[], token).unwrap()
    }

    #[test]
    fn there_are_no_files_behind_paths() {
        let (access, watch) = (open(None), Watch::default());
        for path in [
            "/../etc/passwd",
            "/..%2f..%2fetc/passwd",
            "//etc/passwd",
            "/api",
            "/api/",
            "/api/now/",
            "/index.html",
            "/%2e%2e/",
        ] {
            let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(ask(&text, &access, &watch).0, Status::NotFound, "{path}");
        }
        for (path, status) in [
            ("/", Status::Ok),
            ("/api/now?x=%", Status::Ok),
            ("/api/samples?pools=1-2", Status::BadRequest),
            ("/api/samples?pools=1-2-3,&after_ms=x", Status::Ok),
            ("/api/map?pool=1-0-1", Status::Ok),
            ("/api/map", Status::Ok),
            ("/api/events?changes=0", Status::Ok),
        ] {
            let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(ask(&text, &access, &watch).0, status, "{path}");
        }
    }

    /// Any bytes get an answer, and without the token no answer but the one that
    /// asks for it. `MEMCUDA_FUZZ` is the number of executions.
    #[test]
    fn random_requests_are_answered_and_never_let_in() {
        const WORDS: &[&str] = &[
            "GET ",
            "HEAD ",
            "POST ",
            "/",
            "/api/now",
            "/api/samples?pools=",
            "1-0-7,",
            "/api/map?pool=1-0-7",
            "/api/events?changes=",
            "/../",
            "%2e",
            "?",
            "&",
            "=",
            "token=secret-toke",
            "HTTP/1.1",
            "HTTP/1.0",
            " ",
            "\r\n",
            "\n",
            "\r\n\r\n",
            "Host: localhost",
            "Host: [::1]:9",
            "Host: evil",
            "Cookie: memcuda-1=secret",
            "Authorization: Bearer ",
            "Content-Length: 0",
            "Content-Length: 9",
            "Transfer-Encoding: chunked",
            ": ",
            "\0",
            "\u{ff}",
            "99999999999999999999",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
        ];
        let count = std::env::var("MEMCUDA_FUZZ").map_or(20_000, |n| n.parse().unwrap());
        let (access, watch) = (open(Some("secret-token-of-ours")), Watch::default());
        let free = open(None);
        let mut random = Random(0x2545_F491_4F6C_DD1D);
        let (mut refused, mut served) = (0, 0);
        for _ in 0..count {
            let mut bytes = match random.index(3) {
                0 => Vec::new(),
                _ => b"GET /api/events?changes=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            };
            for _ in 0..random.index(6) {
                let at = random.index(bytes.len() + 1);
                match random.index(4) {
                    0 => bytes.truncate(at),
                    1 if at < bytes.len() => bytes[at] = random.index(256) as u8,
                    _ => {
                        let word = WORDS[random.index(WORDS.len())];
                        bytes.splice(at..at, word.bytes());
                    }
                }
            }
            let with_token = answer(read(&bytes), &access, &watch);
            assert_ne!(
                with_token.status,
                Status::Ok,
                "{:?}",
                bytes.escape_ascii().to_string()
            );
            refused += usize::from(with_token.status == Status::Unauthorized);
            let without = answer(read(&bytes), &free, &watch);
            served += usize::from(without.status == Status::Ok);
            for answer in [with_token, without] {
                let mut text = Vec::new();
                answer.write(&mut text, true).unwrap();
                let head = text.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
                assert_eq!(text.len() - head - 4, answer.body.len());
                assert!(text.starts_with(b"HTTP/1.1 "));
            }
        }
        assert!(
            refused > count / 20 && served > count / 20,
            "{refused} {served}"
        );
    }
}
