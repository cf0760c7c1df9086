//! Arguments that are numbers or addresses, with what is accepted where one is not: the
//! standard library says "invalid digit found in string". Only reads text.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A number without a sign or a fraction.
pub fn number<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "accepted: a whole number")
}

/// The same, from here to there.
pub fn between<T: FromStr + Display + PartialOrd + Clone>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = number(text).ok().filter(|it| range.contains(it));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("accepted: a whole number from {least} to {most}"))
    }
}

/// Where to serve.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "accepted: an address in numbers and a port, such as 127.0.0.1:9477")
}
