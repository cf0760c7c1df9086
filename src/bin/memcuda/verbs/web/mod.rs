//! `memcuda web`: the live view of all preloaded processes as a page, and their
//! counters for Prometheus. A process of its own that only reads: it changes
//! nothing in the processes that it shows, nor in the keeper.

mod access;
mod history;
mod http;
mod map;
mod metrics;
mod page;
mod route;
mod server;
mod watch;

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};

use crate::survey::{self, Survey};
use crate::{accepted, output};
use access::{Access, Token};
use watch::Watch;

/// Serve a page with the live view of all processes, and /metrics for Prometheus.
///
/// Reads only. On 127.0.0.1 every user of this machine can read what it shows (those
/// processes that its own user may look into); a token keeps others out.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where: an address of this machine and a port; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9477", value_parser = accepted::address)]
    listen: SocketAddr,
    /// Only who has the token in the first line of this file may read
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A name under which clients know this machine, besides localhost and its addresses
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Print what /metrics says now, and end
    #[arg(long, conflicts_with_all = ["token_file", "host"])]
    metrics: bool,
}

impl Arguments {
    /// Does it go on, with nobody to look at it?
    pub fn serves(&self) -> bool {
        !self.metrics
    }
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.metrics {
        let text = metrics::text(&Survey::default().look()?, &survey::names());
        output::out().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let token = arguments.token_file.as_deref();
    let token = token.map(Token::read).transpose()?;
    let behind = if token.is_some() { "?token=TOKEN" } else { "" };
    let access = Access::new(arguments.listen, &arguments.host, token)?;
    let listener = bind(arguments.listen)?;
    let at = listener.local_addr()?;
    let access = access.at(at);
    let watch = Arc::new(Watch::default());
    let mut survey = Survey::default();
    watch.look(&mut survey);
    let watching = watch.clone();
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || watching.run(survey))
        .context("cannot start a thread that looks at processes")?;
    tracing::info!("serves http://{at}/");
    // A closed output is no reason not to serve.
    let _ = output::line(format_args!("http://{at}/{behind}"));
    let answer = move |head: http::Head<'_>| route::answer(head, &access, &watch);
    server::serve(&listener, Arc::new(answer))?;
    Ok(ExitCode::SUCCESS)
}

fn bind(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow!(
            "{at} is in use: choose another port with --listen (port 0 takes any that is free)"
        ),
        ErrorKind::AddrNotAvailable => anyhow!("{at} is no address of this machine"),
        ErrorKind::PermissionDenied => anyhow!("{at}: ports below 1024 are root's"),
        _ => anyhow!("{at}: {error}"),
    })
}
