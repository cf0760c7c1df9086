//! Where Redis is, as a user writes it. The preloaded library has no crate that reads
//! addresses, and starts the keeper, which has one: what that refuses is found here, by
//! hand. Refuses nothing that it takes, and leaves to it what people hardly get wrong.

use std::net::Ipv6Addr;

/// Is it an address of a server?
pub fn is_address(text: &str) -> bool {
    // Nobody sees these, and the keeper's crate leaves them out.
    let text: String = text
        .trim_matches(|c: char| c <= ' ')
        .chars()
        .filter(|c| !matches!(c, '\t' | '\n' | '\r'))
        .collect();
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let (rest, _fragment) = cut(rest, '#');
    let (rest, query) = cut(rest, '?');
    let (server, path) = cut(rest, '/');
    match scheme {
        "redis" | "rediss" => host(server).is_some() && is_database(path.trim_matches('/')),
        "redis+unix" => {
            // `:@` is a user without a name.
            let here = matches!(server, "" | ":@") || host(server) == Some("localhost");
            let absolute = here && rest.contains('/');
            absolute && named(query, "db").is_none_or(is_encoded_database)
        }
        _ => false,
    }
}

/// What is before and behind the first of these.
fn cut(text: &str, at: char) -> (&str, &str) {
    text.split_once(at).unwrap_or((text, ""))
}

/// The host of `[USER:PASSWORD@]HOST[:PORT]`.
fn host(text: &str) -> Option<&str> {
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            // Not one to which nobody can connect.
            let known = address
                .parse()
                .is_ok_and(|it: Ipv6Addr| !it.is_unspecified());
            (known.then_some(address)?, port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_name(name).then_some(name)?, port)
        }
    };
    let port_fits = match port.strip_prefix(':') {
        Some(port) => port.is_empty() || is_port(port),
        None => port.is_empty(),
    };
    port_fits.then_some(host)
}

fn is_name(text: &str) -> bool {
    let never = |c: char| c == '\0' || " <>[\\]^|".contains(c);
    !text.is_empty() && !text.contains(never) && text != "0.0.0.0"
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

fn is_database(text: &str) -> bool {
    text.is_empty() || text.parse::<i64>().is_ok()
}

/// The same in a query, where it may be written in another way.
fn is_encoded_database(text: &str) -> bool {
    text.contains('%') || text.parse::<i64>().is_ok()
}

/// The value of this name in a query; the last one counts.
fn named<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.rsplit('&').map(|pair| cut(pair, '='));
    pairs.find(|(it, _)| *it == name).map(|(_, value)| value)
}
