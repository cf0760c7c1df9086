//! `memcuda top`: processes and their devices, live, in a terminal; `--once`
//! prints the same once.

mod app;
mod bar;
mod columns;
mod draw;
mod feed;
mod screen;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use memcuda::epoch::now_us;
use memcuda::error::Error;
use ratatui::crossterm::event::{Event, KeyEventKind};

use crate::output::{self, Table};
use crate::survey::{Seen, Survey};
use app::{App, Wish};
use feed::{Feed, News};
use screen::Screen;

/// How long keys are waited for between two looks for news.
const TICK: Duration = Duration::from_millis(100);

/// Watch what processes hold on each device, in the terminal.
///
/// Keys: ? shows them. IDLE is what the pool holds and has not lent, EFF the live share of
/// the physical bytes that are not shared, HITS the share of requests that needed no driver
/// call, ST/S stitches a second, DRV the time in driver calls, of each second. What a job saves
/// is a difference of two runs: memcuda compare.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print the table once, and end; rates are over one --delay
    #[arg(long)]
    once: bool,
    /// With --once: one JSON object a line
    #[arg(long, requires = "once")]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: f64,
    /// Sorted by this column: pid, command, gpu, live, idle, shared, physical, peak, eff, req/s, hits, st/s, drv
    #[arg(long, value_name = "COLUMN", default_value = "physical", value_parser = column)]
    sort: usize,
    /// Only processes whose number or command has this in it
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
}

fn delay(text: &str) -> Result<f64, Error> {
    let seconds = text.parse().ok().filter(|it| (0.1..=3600.0).contains(it));
    seconds.ok_or_else(|| Error::new("accepted: 0.1 to 3600 seconds"))
}

fn column(text: &str) -> Result<usize, Error> {
    let names: Vec<String> = columns::COLUMNS
        .iter()
        .map(|it| it.head.to_lowercase())
        .collect();
    columns::by_name(text).ok_or_else(|| Error::new(format!("accepted: {}", names.join(", "))))
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let every = Duration::from_secs_f64(arguments.delay);
    let mut app = App::new(arguments.sort, arguments.filter.clone());
    if arguments.once {
        let mut survey = Survey::default();
        survey.look()?;
        std::thread::sleep(every);
        app.take(survey.look()?);
        once(&app, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut screen = Screen::take()?;
    let feed = Feed::start(every)?;
    let mut changed = true;
    loop {
        while let Ok(news) = feed.news.try_recv() {
            take(&mut app, news);
            changed = true;
        }
        feed.want(app.chosen().map(|row| row.pid));
        let drawn = match changed {
            true => screen
                .terminal
                .draw(|frame| draw::draw(frame, &mut app))
                .map(drop),
            false => Ok(()),
        };
        let event = screen.events.recv_timeout(TICK);
        // Before all that fails where the terminal is gone.
        if let Some(signal) = screen.ended() {
            return Ok(ExitCode::from(128 + signal));
        }
        drawn?;
        changed = event.is_ok();
        if let Ok(event) = event {
            // Other events (a new size, the focus) only draw anew.
            if let Event::Key(key) = event?
                && key.kind != KeyEventKind::Release
                && app.press(key) == Wish::Quit
            {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn take(app: &mut App, news: News) {
    if app.paused {
        return;
    }
    app.now_us = now_us();
    match news {
        News::Seen(Ok(seen)) => app.take(seen),
        News::Seen(Err(why)) => app.unseen = Some(why),
        News::Names(names) => app.names = names,
        News::Picture(pid, picture) => app.picture = Some((pid, *picture)),
    }
}

fn once(app: &App, json: bool) -> Result<()> {
    let Seen { unread, .. } = &app.seen;
    for (pid, why) in unread {
        output::say(format_args!("process {pid}: {why}"));
    }
    let rows = app.fitting();
    if json {
        return output::json_lines("top", &rows);
    }
    if rows.is_empty() {
        return output::line(app.nobody());
    }
    let shown: Vec<_> = columns::shown(u16::MAX).map(|(_, column)| column).collect();
    let heads: Vec<&str> = shown.iter().map(|column| column.head).collect();
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(shown.iter().map(|column| column.text(row)).collect());
    }
    table.print()
}
