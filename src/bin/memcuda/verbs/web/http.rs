//! HTTP as far as a page that is only read needs it: the head of a GET or HEAD,
//! and an answer behind which the connection closes. Any bytes are a request, an
//! unfinished one, or a status that refuses them.

use std::borrow::Cow;
use std::io::{self, Write};

use form_urlencoded::parse as parse_query;

/// Most bytes of a head.
pub const MOST_HEAD: usize = 8 << 10;
/// Most header lines.
const MOST_HEADERS: usize = 64;

/// What is asked for. Its text is ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Is only the head of the answer wanted?
    pub head: bool,
    /// The path, as it was written: with nothing decoded.
    pub path: &'a str,
    query: &'a str,
    /// The host that the client means.
    pub host: &'a str,
    /// `Authorization`.
    pub authorization: Option<&'a str>,
    /// `Cookie`.
    pub cookie: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// The first value with this name in the query.
    pub fn query(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut pairs = parse_query(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The same as a number; another text is none.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.query(name)?.parse().ok()
    }
}

/// What bytes are.
#[derive(Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// A request.
    Whole(Request<'a>),
    /// The beginning of one.
    Part,
    /// Nothing that is answered, for this reason.
    Refused(Status),
}

/// Reads the head of a request.
pub fn read(bytes: &[u8]) -> Head<'_> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_HEAD => return Head::Part,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Head::Refused(Status::TooLarge);
        }
        Err(_) => return Head::Refused(Status::BadRequest),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Head::Refused(Status::MethodNotAllowed),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut found = Request {
        head,
        path,
        query,
        host: "",
        authorization: None,
        cookie: None,
    };
    let mut hosts = 0;
    for header in request.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        // A body has no meaning here, and its bytes could be taken for a request.
        let body =
            name == "transfer-encoding" || (name == "content-length" && header.value != b"0");
        let text = str::from_utf8(header.value)
            .ok()
            .filter(|text| text.is_ascii());
        match (&name[..], text) {
            _ if body => return Head::Refused(Status::BadRequest),
            ("host", Some(text)) => {
                hosts += 1;
                found.host = text;
            }
            ("host", None) => return Head::Refused(Status::BadRequest),
            ("authorization", text) => found.authorization = text,
            ("cookie", text) => found.cookie = text,
            _ => {}
        }
    }
    if hosts != 1 || !path.starts_with('/') || !target.is_ascii() {
        return Head::Refused(Status::BadRequest);
    }
    Head::Whole(found)
}

/// How an answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    BadRequest,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    Timeout,
    Misdirected,
    TooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::Misdirected => "421 Misdirected Request",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// How it begins.
    pub status: Status,
    /// `Content-Type`.
    pub kind: &'static str,
    /// What it says.
    pub body: Vec<u8>,
    /// More headers, a line each.
    pub headers: Vec<String>,
}

/// Plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    /// What was asked for.
    pub fn found(kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            status: Status::Ok,
            kind,
            body,
            headers: Vec::new(),
        }
    }

    /// An object.
    pub fn json<T: serde::Serialize>(value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::found("application/json", body),
            Err(error) => Self::refused(Status::Unavailable, &error.to_string()),
        }
    }

    /// Something else, and why in a line.
    pub fn refused(status: Status, why: &str) -> Self {
        let line = if why.is_empty() { status.line() } else { why };
        let mut headers = Vec::new();
        if status == Status::MethodNotAllowed {
            headers.push("Allow: GET, HEAD".to_owned());
        }
        if status == Status::Unauthorized {
            headers.push("WWW-Authenticate: Bearer".to_owned());
        }
        Self {
            status,
            kind: TEXT,
            body: format!("{line}\n").into_bytes(),
            headers,
        }
    }

    /// Writes it, with its body or without.
    pub fn write(&self, into: &mut dyn Write, body: bool) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             X-Frame-Options: DENY\r\n",
            self.status.line(),
            self.kind,
            self.body.len()
        );
        for line in &self.headers {
            head += line;
            head += "\r\n";
        }
        head += "\r\n";
        into.write_all(head.as_bytes())?;
        if body {
            into.write_all(&self.body)?;
        }
        into.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Request<'_> {
        match read(text.as_bytes()) {
            Head::Whole(request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn refused(text: &str) -> Status {
        match read(text.as_bytes()) {
            Head::Refused(status) => status,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_get_is_read() {
        let request = whole(
            "GET /api/names?from=100&filter=a%20b%2f HTTP/1.1\r\nHOST: localhost:1\r\ncookie: a=b\r\n\r\n",
        );
        assert_eq!((request.path, request.host), ("/api/names", "localhost:1"));
        assert_eq!((request.head, request.cookie), (false, Some("a=b")));
        assert_eq!(request.number("from"), Some(100));
        assert_eq!(request.query("filter").as_deref(), Some("a b/"));
        assert_eq!(request.number("filter"), None);
        assert_eq!(request.query("count"), None);
        assert!(whole("HEAD / HTTP/1.0\r\nHost: x\r\n\r\n").head);
    }

    #[test]
    fn anything_else_is_refused_with_its_status() {
        use Status::*;
        for (text, status) in [
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", MethodNotAllowed),
            ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", MethodNotAllowed),
            ("get / HTTP/1.1\r\nHost: x\r\n\r\n", MethodNotAllowed),
            ("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", BadRequest),
            ("GET / HTTP/1.1\r\n\r\n", BadRequest),
            ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", BadRequest),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
                BadRequest,
            ),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                BadRequest,
            ),
            ("GET / HTTP/2\r\nHost: x\r\n\r\n", BadRequest),
            ("\x16\x03\x01\x02", BadRequest),
        ] {
            assert_eq!(refused(text), status, "{text:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(MOST_HEAD));
        assert_eq!(refused(&long), TooLarge);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65));
        assert_eq!(refused(&many), TooLarge);
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost"), Head::Part);
    }
}
