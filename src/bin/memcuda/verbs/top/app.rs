//! What the screen shows, and what keys change of it. Draws nothing and asks
//! nobody.

use memcuda::picture::Picture;
use memcuda::share::protocol::Entry;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::columns::{self, COLUMNS};
use crate::survey::{Key, NOBODY, Names, Row, Seen};

/// Which table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    #[default]
    Processes,
    Names,
}

/// Who hears keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Table,
    /// The line of the filter.
    Filter,
    Help,
}

/// What a key asks for beyond a change of what is shown.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Quit,
}

/// What is shown.
pub struct App {
    pub seen: Seen,
    /// Why there is nothing newer.
    pub unseen: Option<String>,
    pub names: Names,
    /// Of which process, and its picture or why there is none.
    pub picture: Option<(u32, Result<Picture, String>)>,
    pub view: View,
    pub mode: Mode,
    pub sort: usize,
    pub up: bool,
    pub filter: String,
    pub paused: bool,
    /// Microseconds of the Unix epoch, for ages.
    pub now_us: u64,
    chosen: Option<Key>,
    /// Where the tables are scrolled to.
    pub rows: TableState,
    pub name_rows: TableState,
    /// Rows of the table on the screen, for a page up or down.
    pub page: usize,
}

impl App {
    /// An empty screen.
    pub fn new(sort: usize, filter: String) -> Self {
        Self {
            seen: Seen::default(),
            unseen: None,
            names: Names::default(),
            picture: None,
            view: View::default(),
            mode: Mode::default(),
            sort,
            up: false,
            filter,
            paused: false,
            now_us: 0,
            chosen: None,
            rows: TableState::new().with_selected(0),
            name_rows: TableState::new().with_selected(0),
            page: 10,
        }
    }

    /// Takes what was seen now. The row that was chosen stays chosen, wherever it
    /// is now; where it is gone, the one in its place is.
    pub fn take(&mut self, seen: Seen) {
        self.seen = seen;
        self.unseen = None;
        self.order();
    }

    fn order(&mut self) {
        columns::sort(&mut self.seen.rows, self.sort, self.up);
        let rows = self.fitting();
        let found = rows.iter().position(|row| Some(row.key()) == self.chosen);
        let at = found.or(self.rows.selected()).unwrap_or(0);
        let at = at.min(rows.len().saturating_sub(1));
        let key = rows.get(at).map(|row| row.key());
        self.rows.select(Some(at));
        self.chosen = key;
    }

    /// The rows that fit the filter, in order.
    pub fn fitting(&self) -> Vec<&Row> {
        let filter = self.filter.to_lowercase();
        let fits = |row: &&Row| {
            format!("{} {}", row.pid, row.command)
                .to_lowercase()
                .contains(&filter)
        };
        self.seen.rows.iter().filter(fits).collect()
    }

    /// What is said where no row fits.
    pub fn nobody(&self) -> String {
        match (&self.unseen, &self.filter[..]) {
            (Some(why), _) => why.clone(),
            (None, "") => NOBODY.to_owned(),
            (None, filter) => format!("no process has \"{filter}\" in it"),
        }
    }

    /// The names that fit the filter.
    pub fn fitting_names(&self) -> Vec<&Entry> {
        self.names.fitting(&self.filter)
    }

    /// The row that is chosen.
    pub fn chosen(&self) -> Option<&Row> {
        self.fitting()
            .into_iter()
            .find(|row| Some(row.key()) == self.chosen)
    }

    /// What a key does.
    pub fn press(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL)
            && matches!(key.code, KeyCode::Char('c' | 'd'))
        {
            return Wish::Quit;
        }
        match self.mode {
            Mode::Help => self.mode = Mode::Table,
            Mode::Filter => self.edit(key.code),
            Mode::Table => return self.command(key.code),
        }
        Wish::Nothing
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if self.filter.len() < 60 && !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.order();
        self.name_rows.select(Some(0));
    }

    fn command(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.filter.is_empty() => return Wish::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Tab | KeyCode::Char('n') => {
                self.view = match self.view {
                    View::Processes => View::Names,
                    View::Names => View::Processes,
                };
            }
            KeyCode::Char('s' | '>') | KeyCode::Right => {
                self.sort = (self.sort + 1) % COLUMNS.len()
            }
            KeyCode::Char('S' | '<') | KeyCode::Left => {
                self.sort = (self.sort + COLUMNS.len() - 1) % COLUMNS.len();
            }
            KeyCode::Char('r') => self.up = !self.up,
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(self.page as isize),
            KeyCode::PageUp => self.step(-(self.page as isize)),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX / 2),
            // What a panic leaves of the terminal, for the tests.
            #[cfg(debug_assertions)]
            KeyCode::F(12) => panic!("as F12 asks for in builds for tests"),
            _ => {}
        }
        self.order();
        Wish::Nothing
    }

    fn step(&mut self, by: isize) {
        let (count, state) = match self.view {
            View::Processes => (self.fitting().len(), &mut self.rows),
            View::Names => (self.fitting_names().len(), &mut self.name_rows),
        };
        let at = state.selected().unwrap_or(0).saturating_add_signed(by);
        let at = at.min(count.saturating_sub(1));
        state.select(Some(at));
        if self.view == View::Processes {
            self.chosen = self.fitting().get(at).map(|row| row.key());
        }
    }
}
