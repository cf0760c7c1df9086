//! The screen. What is told by a colour is told by a sign or a word, too.

use memcuda::share::protocol::Entry;
use memcuda::units::show_bytes;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Borders, Cell, Clear, Padding, Paragraph, Row as TableRow, Table, TableState,
};

use super::app::{App, Mode, View};
use super::bar::{self, Bars};
use super::columns::{self, COLUMNS};
use crate::names::entry;
use crate::output::times;
use crate::pictures::reading::{KINDS, What};
use crate::survey::Row;

/// The least that all of it fits in.
const LEAST: (u16, u16) = (60, 10);
/// Lines of the chosen process.
const DETAIL: u16 = 9;
/// Lines of its map.
const BARS: u16 = 4;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let said = format!(
            "{}x{} is too small: {}x{} or more; q quits",
            area.width, area.height, LEAST.0, LEAST.1
        );
        frame.render_widget(Paragraph::new(said), area);
        return;
    }
    let detail = if app.view == View::Processes && area.height >= 18 {
        DETAIL
    } else {
        0
    };
    let parts = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(detail),
        Constraint::Length(1),
    ];
    let [head, table, below, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(heading(app, head.width), head);
    app.page = usize::from(table.height.saturating_sub(2)).max(1);
    match app.view {
        View::Processes => processes(frame, app, table),
        View::Names => names(frame, app, table),
    }
    if detail > 0 {
        chosen(frame, app, below);
    }
    frame.render_widget(footer(app), foot);
    if app.mode == Mode::Help {
        help(frame, area);
    }
}

fn heading(app: &App, width: u16) -> Paragraph<'static> {
    let rows = &app.seen.rows;
    let sum = |of: fn(&Row) -> u64| show_bytes(rows.iter().map(of).sum());
    let mut pids: Vec<u32> = rows.iter().map(|row| row.pid).collect();
    pids.dedup();
    pids.sort_unstable();
    pids.dedup();
    let mut text = format!(" {}", times(pids.len() as u64, "process", "processes"));
    if !app.seen.unread.is_empty() {
        text += &format!(", {} unread", app.seen.unread.len());
    }
    text += &format!(
        "  live {}  idle {}  physical {}",
        sum(|row| row.counters.pool.live_bytes),
        sum(|row| row.counters.pool.idle_bytes),
        sum(|row| row.counters.pool.physical_bytes)
    );
    if app.paused {
        text += "  PAUSED";
    }
    // What is shown was true before.
    if let Some(why) = &app.unseen {
        text = format!(" {why}");
    }
    let style = Style::new().add_modifier(Modifier::REVERSED);
    Paragraph::new(format!("{text:<0$}", usize::from(width))).style(style)
}

fn processes(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let shown: Vec<_> = columns::shown(area.width).collect();
    let sorted = if app.up { "▲" } else { "▼" };
    let head = shown.iter().map(|(at, column)| {
        let text = match *at == app.sort {
            true => format!("{}{sorted}", column.head),
            false => column.head.to_owned(),
        };
        align(text, column.is_left())
    });
    let head =
        TableRow::new(head.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD));
    let rows: Vec<TableRow<'_>> = app
        .fitting()
        .into_iter()
        .map(|row| {
            TableRow::new(
                shown
                    .iter()
                    .map(|(_, column)| align(column.text(row), column.is_left()))
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    if rows.is_empty() {
        let why = match app.filter.is_empty() {
            true => app.nobody(),
            false => app.nobody() + "; Esc clears the filter",
        };
        frame.render_widget(Paragraph::new(why), area);
        return;
    }
    let widths = shown.iter().map(|(_, column)| match column.is_left() {
        true => Constraint::Min(column.width),
        false => Constraint::Length(column.width),
    });
    let table = Table::new(rows, widths).header(head).column_spacing(1);
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut app.rows);
}

fn align(text: String, left: bool) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(if left {
        line
    } else {
        line.alignment(Alignment::Right)
    })
}

fn names(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    if let Some(why) = &app.names.nobody {
        frame.render_widget(Paragraph::new(why.as_str()), area);
        return;
    }
    let row = |it: &&Entry| {
        let age = entry::show_seconds(entry::seconds_since(it.created_us, app.now_us));
        TableRow::new([
            align(entry::title(it), true),
            align(entry::size(it), false),
            align(it.spec.ordinal.to_string(), false),
            align(entry::state(it).to_owned(), true),
            align(held_by(it), true),
            align(age, false),
        ])
    };
    // Only rows that may be seen are made: there may be ten thousand.
    let fitting = app.fitting_names();
    let (count, height) = (
        fitting.len(),
        usize::from(area.height).saturating_sub(1).max(1),
    );
    let at = app
        .name_rows
        .selected()
        .unwrap_or(0)
        .min(count.saturating_sub(1));
    let from = app
        .name_rows
        .offset()
        .clamp((at + 1).saturating_sub(height), at);
    let rows: Vec<_> = fitting.iter().skip(from).take(height).map(row).collect();
    let head = TableRow::new(
        ["NAME", "SIZE", "GPU", "STATE", "HELD BY", "AGE"]
            .map(|it| align(it.to_owned(), !matches!(it, "SIZE" | "GPU" | "AGE"))),
    );
    let widths = [
        Constraint::Min(16),
        Constraint::Length(10),
        Constraint::Length(3),
        Constraint::Length(8),
        Constraint::Length(24),
        Constraint::Length(5),
    ];
    let table = Table::new(rows, widths).column_spacing(1);
    let table = table.header(head.style(Style::new().add_modifier(Modifier::BOLD)));
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(at - from.min(at));
    frame.render_stateful_widget(table, area, &mut state);
    *app.name_rows.offset_mut() = from;
    app.name_rows.select(Some(at));
}

fn held_by(it: &Entry) -> String {
    match &it.holders[..] {
        [] => entry::held_by(it),
        [one] => entry::who(&one.process),
        [one, rest @ ..] => format!("{} and {} more", entry::who(&one.process), rest.len()),
    }
}

/// The process that is chosen: its map, what is idle, its names.
fn chosen(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Some(row) = app.chosen() else { return };
    let pool = &row.counters.pool;
    let inside = usize::from(area.width);
    let mut title = format!(
        " {} {} on device {} ",
        row.command, row.pid, row.counters.ordinal
    );
    let mut lines: Vec<Line<'_>> = Vec::new();
    let picture = app.picture.as_ref().filter(|(pid, _)| *pid == row.pid);
    let cells = inside * usize::from(BARS);
    match picture.map(|(_, picture)| picture) {
        None => lines.push("asking it for its picture ...".into()),
        Some(Err(why)) => lines.push(format!("no map: {why}").into()),
        Some(Ok(picture)) => match bar::bars(picture, row.counters.ordinal, cells) {
            None => lines.push("no map: it has no pool on this device any more".into()),
            Some(bars) => {
                title += &device(&bars);
                lines.extend(bars.cells.chunks(inside).map(map_line));
                lines.push(key(&bars));
                lines.push(Line::from(format!(
                    "idle in {} pieces, largest {}; rounding {}; {} a cell",
                    bars.sums.idle_runs,
                    show_bytes(bars.sums.largest_idle),
                    show_bytes(pool.granted_bytes.saturating_sub(pool.live_bytes)),
                    show_bytes(bars.cell_bytes)
                )));
            }
        },
    }
    lines.push(Line::from(format!(
        "peak live {}, physical {}; {} chunks, {} stalls, {} refused",
        show_bytes(pool.peak_live_bytes),
        show_bytes(pool.peak_physical_bytes),
        pool.chunks,
        pool.stalls,
        pool.out_of_memory
    )));
    lines.push(Line::from(names_of(app, row)));
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn device(bars: &Bars) -> String {
    let limit = bars.limit.map_or(String::new(), |limit| {
        format!(", limit {}", show_bytes(limit))
    });
    match bars.device.is_empty() {
        true => limit,
        false => format!("({}, {}{limit}) ", bars.device, show_bytes(bars.total)),
    }
}

/// A sign for each kind, so that the map can be read without colours.
fn sign(what: What) -> (&'static str, Color, &'static str) {
    match what {
        What::Live => ("█", Color::Blue, "live"),
        What::Shared => ("▓", Color::Magenta, "shared"),
        What::Pending => ("▒", Color::Yellow, "pending"),
        What::Idle => ("░", Color::Gray, "idle"),
        What::Held => ("·", Color::Red, "on its way"),
    }
}

fn map_line(cells: &[What]) -> Line<'static> {
    let spans = cells.chunk_by(|a, b| a == b).map(|run| {
        let (sign, color, _) = sign(run[0]);
        Span::from(sign.repeat(run.len())).fg(color)
    });
    Line::from(spans.collect::<Vec<_>>())
}

fn key(bars: &Bars) -> Line<'static> {
    let mut spans = Vec::new();
    for what in KINDS {
        let bytes = bars.sums.of(what);
        if bytes == 0 && what == What::Held {
            continue;
        }
        let (sign, color, word) = sign(what);
        spans.push(Span::from(sign).fg(color));
        spans.push(Span::from(format!(" {word} {}   ", show_bytes(bytes))));
    }
    Line::from(spans)
}

/// The names that a process holds, as many as a line has room for.
fn names_of(app: &App, row: &Row) -> String {
    let holds = |it: &&Entry| {
        it.holders
            .iter()
            .any(|holder| holder.process.pid == row.pid)
    };
    let held: Vec<&Entry> = app.names.entries.iter().filter(holds).collect();
    let bytes = show_bytes(held.iter().map(|it| it.mapped).sum());
    let titles: Vec<String> = held.iter().take(8).map(|it| entry::title(it)).collect();
    match held.len() {
        0 => "holds no names".to_owned(),
        1 => format!("holds 1 name, {bytes}: {}", titles[0]),
        count => format!("holds {count} names, {bytes}: {}", titles.join(" ")),
    }
}

fn footer(app: &App) -> Paragraph<'static> {
    let text = match (app.mode, app.view) {
        (Mode::Filter, _) => format!(" filter: {}_   Enter keeps it, Esc clears it", app.filter),
        (_, View::Names) => {
            let count = app.fitting_names().len();
            format!(
                " {count} names{}   Tab processes  / filter  p pause  ? help  q quit",
                filtered(app)
            )
        }
        _ => {
            let by = COLUMNS[app.sort].head.to_lowercase();
            format!(
                " by {by}{}   ←→ sort  r turn  / filter  Tab names  p pause  ? help  q quit",
                filtered(app)
            )
        }
    };
    Paragraph::new(text).style(Style::new().add_modifier(Modifier::DIM))
}

fn filtered(app: &App) -> String {
    match app.filter.is_empty() {
        true => String::new(),
        false => format!(", with \"{}\"", app.filter),
    }
}

const HELP: &str = "\
up down j k    the row before, the next one
PgUp PgDn      a page; Home End the first, the last
left right     sort by another column; r turns the order
/              filter by number, command, name, holder
Tab n          processes, or names and who holds them
p space        pause
q Esc ^C       quit

LIVE asked for and not freed   IDLE held and not lent
PHYSICAL all handles           SHARED those of names
EFF  live of those not shared  HITS of no driver call
ST/S stitches a second         DRV  time in the driver

What a job saves is a difference of two runs:
memcuda compare -- CMD                  any key: back";

fn help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (60.min(area.width), 17.min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(HELP).block(
            Block::bordered()
                .title(" keys ")
                .padding(Padding::horizontal(1)),
        ),
        place,
    );
}
