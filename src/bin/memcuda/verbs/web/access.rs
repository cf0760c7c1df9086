//! Who may ask: only clients that mean this server by an address or a name of its
//! own (a page of another site whose name was bound to our address does not), and,
//! where there is a token, only who has it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use memcuda::error::Error;

use super::http::{Answer, Request, Status};

/// Bytes of a token's line that are looked at: more than a token may have.
const MOST_LINE: u64 = 4096;

/// Who may ask.
pub struct Access {
    /// Names of this host, in lower case, besides `localhost` and all addresses.
    hosts: Vec<String>,
    token: Option<Token>,
    port: u16,
}

/// A secret that clients must have: letters, digits and `-._~`.
pub struct Token(String);

impl Token {
    /// Checks what somebody chose.
    pub fn new(text: &str) -> memcuda::error::Result<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        // Its own text is a secret, and not said.
        if !(8..=256).contains(&text.len()) || !text.chars().all(fits) {
            return Err(Error::new(format!(
                "a token of {} bytes is not accepted: 8 to 256 letters, digits, and - . _ ~",
                text.len()
            )));
        }
        Ok(Self(text.to_owned()))
    }

    /// Reads one from the first line of a file, and nothing else of it.
    pub fn read(path: &Path) -> memcuda::error::Result<Self> {
        let mut line = String::new();
        let file = File::open(path).map_err(|error| Error::of_file(path, error))?;
        let read = BufReader::new(file.take(MOST_LINE)).read_line(&mut line);
        read.map_err(|error| Error::of_file(path, error))?;
        Self::new(line.trim_end()).map_err(|error| Error::of_file(path, error))
    }

    /// Compares in a time that does not tell how much of it is right.
    fn is(&self, text: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), text.as_bytes());
        let differ = |sum, (a, b): (&u8, &u8)| sum | (a ^ b);
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, differ) == 0
    }
}

impl Access {
    /// The rules of a server at this address. One that others can reach must
    /// have a token.
    pub fn new(
        at: SocketAddr,
        hosts: &[String],
        token: Option<Token>,
    ) -> memcuda::error::Result<Self> {
        if token.is_none() && !at.ip().is_loopback() {
            return Err(Error::new(format!(
                "--listen {at} is open to other machines: --token-file FILE says who may read (127.0.0.1:PORT needs none)"
            )));
        }
        Ok(Self {
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            token,
            port: at.port(),
        })
    }

    /// The same at the address that was taken.
    pub fn at(self, at: SocketAddr) -> Self {
        let port = at.port();
        Self { port, ..self }
    }

    /// Lets a request in, or says why not. `Ok` has the header by which a browser
    /// remembers the token.
    pub fn check(&self, request: &Request<'_>) -> Result<Option<String>, Answer> {
        if !self.is_ours(request.host) {
            let why = "this server has another name: ask it by address, as localhost, or start it with --host NAME";
            return Err(Answer::refused(Status::Misdirected, why));
        }
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let bearer = request
            .authorization
            .and_then(|it| it.strip_prefix("Bearer "));
        let cookies = request.cookie.unwrap_or_default().split(';');
        let name = self.cookie();
        let mut cookies = cookies.filter_map(|it| it.trim().strip_prefix(&name)?.strip_prefix('='));
        if bearer.is_some_and(|it| token.is(it)) || cookies.any(|it| token.is(it)) {
            return Ok(None);
        }
        if request.query("token").is_some_and(|it| token.is(&it)) {
            let keep = format!(
                "Set-Cookie: {name}={}; Path=/; HttpOnly; SameSite=Strict",
                token.0
            );
            return Ok(Some(keep));
        }
        let why = "a token is needed: open /?token=TOKEN, or send Authorization: Bearer TOKEN";
        Err(Answer::refused(Status::Unauthorized, why))
    }

    /// One host may have several servers, and cookies do not tell ports apart.
    fn cookie(&self) -> String {
        format!("memcuda-{}", self.port)
    }

    /// Names can be bound to any address by whoever has them; addresses cannot.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
                name
            }
            _ => host,
        };
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let name = name.to_ascii_lowercase();
        match bare {
            Some(six) => six.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let four = matches!(name.parse(), Ok(IpAddr::V4(_)));
                four || name == "localhost" || self.hosts.contains(&name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::http::{Head, read};
    use super::*;

    fn access(token: Option<&str>) -> Access {
        let at = "127.0.0.1:9464".parse().unwrap();
        let token = token.map(|it| Token::new(it).unwrap());
        Access::new(at, &["gpu7.Example".to_owned()], token).unwrap()
    }

    fn check(access: &Access, head: &str) -> Result<Option<String>, Status> {
        let text = format!("GET {head}\r\n\r\n");
        let Head::Whole(request) = read(text.as_bytes()) else {
            panic!("{text}");
        };
        access.check(&request).map_err(|answer| answer.status)
    }

    #[test]
    fn only_own_names_and_addresses_are_hosts() {
        let access = access(None);
        let host = |host: &str| check(&access, &format!("/ HTTP/1.1\r\nHost: {host}"));
        for ours in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:9464",
            "10.1.2.3",
            "[::1]:9464",
            "GPU7.example",
        ] {
            assert_eq!(host(ours), Ok(None), "{ours}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example:9464",
            "127.0.0.1.evil.example",
            "",
            "[evil]",
            "::1",
            "gpu7",
            "a:b",
        ] {
            assert_eq!(host(other), Err(Status::Misdirected), "{other}");
        }
    }

    #[test]
    fn a_token_comes_by_query_header_or_cookie() {
        let access = access(Some("correct-horse"));
        let ask = |path: &str, more: &str| {
            check(
                &access,
                &format!("{path} HTTP/1.1\r\nHost: localhost{more}"),
            )
        };
        assert_eq!(ask("/", ""), Err(Status::Unauthorized));
        assert_eq!(ask("/?token=correct-hors", ""), Err(Status::Unauthorized));
        assert_eq!(
            ask("/metrics", "\r\nAuthorization: Bearer battery-staple"),
            Err(Status::Unauthorized)
        );
        assert_eq!(
            ask("/", "\r\nCookie: memcuda-1=correct-horse"),
            Err(Status::Unauthorized)
        );
        let set = ask("/?token=correct-horse", "").unwrap().unwrap();
        assert!(set.contains("memcuda-9464=correct-horse; Path=/; HttpOnly; SameSite=Strict"));
        assert_eq!(
            ask("/api/now", "\r\nCookie: x=y; memcuda-9464=correct-horse"),
            Ok(None)
        );
        assert_eq!(
            ask("/metrics", "\r\nAuthorization: Bearer correct-horse"),
            Ok(None)
        );
    }

    #[test]
    fn a_bad_token_and_an_open_door_are_refused() {
        for bad in ["", "short", "has a space", &"x".repeat(257), "semi;colon"] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
        let at = "0.0.0.0:9464".parse().unwrap();
        let error = Access::new(at, &[], None).err().unwrap().to_string();
        assert!(
            error.contains("--listen 0.0.0.0:9464 is open to other machines"),
            "{error}"
        );
    }
}
