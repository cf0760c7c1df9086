//! The page: one document with its styles and its script inside, which may
//! neither load nor run anything else.

use super::http::{Answer, Status};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &[&str] = &[
    include_str!("script/tools.js"),
    include_str!("script/chart.js"),
    include_str!("script/map.js"),
    include_str!("script/tables.js"),
    include_str!("script/main.js"),
];

/// The page, with a number of its own: what does not bear it does not run.
pub fn answer() -> Answer {
    let mut random = [0; 16];
    if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        != Ok(random.len())
    {
        return Answer::refused(Status::Unavailable, "the system has no random bytes");
    }
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let page = PAGE
        .replace("{nonce}", &nonce)
        .replace("{style}", STYLE)
        .replace("{script}", &SCRIPT.concat());
    let mut answer = Answer::found("text/html; charset=utf-8", page.into_bytes());
    answer.headers.push(format!(
        "Content-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ));
    answer
}
