//! What is on the screen, as text in `tests/top`; `UPDATE=1` writes it anew.

mod made_up;
mod svg;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use made_up::{named, picture, seen};
use svg::svg;

use super::app::{App, Wish};
use super::feed::News;
use super::{columns, draw, take};
use crate::survey::{Names, Seen};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn app() -> App {
    let mut app = App::new(columns::by_name("physical").unwrap(), String::new());
    app.take(seen());
    let entries = vec![
        named(8, "base/layers.0/weights", &[4711, 4980]),
        named(2, "base/layers.1/weights", &[4980]),
        named(3, "kept", &[]),
    ];
    app.names = Names {
        entries: Arc::new(entries),
        nobody: None,
        are_unknown: false,
    };
    app.picture = Some((4980, Err("it is another's".to_owned())));
    app.now_us = 7_300_000_000;
    app
}

fn shot(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, app)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let line = |y| -> String {
        let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..buffer.area.height).map(line).collect()
}

fn check(path: PathBuf, found: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == found,
        "{} is not what is shown (UPDATE=1 cargo test --bin memcuda top):\n{found}",
        path.display()
    );
}

fn check_screen(name: &str, app: &mut App, width: u16, height: u16) {
    let found = text(&shot(app, width, height));
    check(root().join("tests/top").join(format!("{name}.txt")), &found);
}

fn press(app: &mut App, keys: &[KeyCode]) {
    for &key in keys {
        let wish = app.press(KeyEvent::new(key, KeyModifiers::NONE));
        assert_eq!(wish, Wish::Nothing, "{key:?}");
    }
}

fn typed(app: &mut App, text: &str) {
    let keys: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(app, &keys);
}

#[test]
fn the_screen_is_as_it_was_at_every_size() {
    let mut app = app();
    check_screen("80x24-no-map", &mut app, 80, 24);
    press(&mut app, &[KeyCode::Down]);
    app.picture = Some((4711, Ok(picture(384))));
    check_screen("80x24", &mut app, 80, 24);
    check_screen("132x40", &mut app, 132, 40);
    check_screen("60x10", &mut app, 60, 10);
    check_screen("59x10", &mut app, 59, 10);
    press(&mut app, &[KeyCode::Char('?')]);
    check_screen("80x24-help", &mut app, 80, 24);
    press(&mut app, &[KeyCode::Char('q'), KeyCode::Tab]);
    check_screen("80x24-names", &mut app, 80, 24);
    let mut empty = App::new(0, String::new());
    check_screen("80x24-nobody", &mut empty, 80, 24);
}

#[test]
fn nothing_is_drawn_over_an_edge_whatever_the_size() {
    let mut app = app();
    app.picture = Some((4980, Ok(picture(100))));
    for (width, height) in [
        (1, 1),
        (60, 10),
        (61, 17),
        (79, 18),
        (80, 25),
        (300, 100),
        (60, 200),
    ] {
        for _ in 0..3 {
            let screen = text(&shot(&mut app, width, height));
            assert_eq!(screen.lines().count(), usize::from(height));
            press(
                &mut app,
                &[
                    KeyCode::Tab,
                    KeyCode::Char('?'),
                    KeyCode::PageDown,
                    KeyCode::End,
                ],
            );
        }
    }
}

#[test]
fn what_is_chosen_stays_chosen() {
    let mut app = app();
    let pid = |app: &App| app.chosen().map(|row| (row.pid, row.counters.ordinal));
    assert_eq!(pid(&app), Some((4980, 2)), "the largest stands first");
    press(&mut app, &[KeyCode::Down]);
    assert_eq!(pid(&app), Some((4711, 0)));
    // It falls behind all others, and the choice with it.
    let mut later = seen();
    later.rows[0].counters.pool.physical_bytes = 1;
    app.take(later);
    assert_eq!((pid(&app), app.rows.selected()), (Some((4711, 0)), Some(3)));
    // It ends: the one in its place is chosen.
    let mut later = seen();
    later.rows.remove(0);
    app.take(later);
    assert_eq!(pid(&app), Some((2_097_151, 3)));
    app.take(Seen::default());
    assert_eq!(pid(&app), None);
    press(&mut app, &[KeyCode::Down, KeyCode::End, KeyCode::PageUp]);
}

#[test]
fn an_error_is_not_shown_as_nobody() {
    let mut app = app();
    let why = "the processes of this machine cannot be listed: why".to_owned();
    take(&mut app, News::Seen(Err(why.clone())));
    let screen = text(&shot(&mut app, 80, 24));
    assert!(screen.contains(&why) && screen.contains("4980"), "{screen}");
    take(&mut app, News::Seen(Ok(seen())));
    assert!(!text(&shot(&mut app, 80, 24)).contains(&why));
    let mut app = App::new(0, String::new());
    take(&mut app, News::Seen(Err(why.clone())));
    assert_eq!(app.nobody(), why);
}

#[test]
fn the_filter_and_the_order_are_what_keys_say() {
    let mut app = app();
    let pids = |app: &App| app.fitting().iter().map(|row| row.pid).collect::<Vec<_>>();
    typed(&mut app, "/PYTHON");
    assert_eq!(pids(&app), [4711, 4711]);
    press(&mut app, &[KeyCode::Enter]);
    assert!(text(&shot(&mut app, 80, 24)).contains("with \"PYTHON\""));
    press(&mut app, &[KeyCode::Esc]);
    assert_eq!(pids(&app), [4980, 4711, 4711, 2_097_151]);
    typed(&mut app, "r");
    assert_eq!(pids(&app), [2_097_151, 4711, 4711, 4980]);
    for _ in 0..columns::COLUMNS.len() {
        press(&mut app, &[KeyCode::Right]);
        assert_eq!(pids(&app).len(), 4);
    }
    typed(&mut app, "/nothing like it");
    assert!(pids(&app).is_empty());
    let screen = text(&shot(&mut app, 80, 24));
    assert!(
        screen.contains("no process has \"nothing like it\" in it"),
        "{screen}"
    );
    press(&mut app, &[KeyCode::Backspace, KeyCode::Esc]);
    let q = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    assert_eq!(app.press(q), Wish::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    typed(&mut app, "/");
    assert_eq!(app.press(ctrl_c), Wish::Quit);
}

#[test]
fn ten_thousand_names_scroll() {
    let mut app = app();
    let entries = (0..10_000)
        .map(|at| named(1, &format!("n/{at:05}"), &[4711]))
        .collect();
    app.names.entries = Arc::new(entries);
    press(&mut app, &[KeyCode::Tab]);
    assert!(text(&shot(&mut app, 80, 24)).contains("n/00000"));
    press(&mut app, &[KeyCode::End]);
    let screen = text(&shot(&mut app, 80, 24));
    assert!(
        screen.contains("n/09999") && !screen.contains("n/00000"),
        "{screen}"
    );
    press(&mut app, &[KeyCode::Up]);
    assert!(text(&shot(&mut app, 80, 24)).contains("n/09999"));
    press(&mut app, &[KeyCode::Home]);
    assert!(text(&shot(&mut app, 80, 24)).contains("n/00000"));
}

/// The picture of the documents: the same screen with its colours.
#[test]
fn the_picture_of_the_documents_is_the_screen() {
    let mut app = app();
    press(&mut app, &[KeyCode::Down]);
    app.picture = Some((4711, Ok(picture(384))));
    let picture = svg(&shot(&mut app, 80, 24));
    check(root().join("docs/images/top.svg"), &picture);
}
