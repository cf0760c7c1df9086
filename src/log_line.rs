//! What a line of the log looks like: the same words and fields in the preloaded
//! library, the keeper, the page and the command. Writes to whatever it is given,
//! a whole character or escape at a time, so that a full buffer cuts between two;
//! never allocates, never decides where a line goes or whether there is one.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::config::Level;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// libmemcuda.so, in the program that it was preloaded into.
    Library,
    /// `memcuda keeper`.
    Keeper,
    /// `memcuda web`.
    Web,
    /// Any other verb.
    Command,
}

impl Part {
    /// The value of the field `part`.
    pub const fn word(self) -> &'static str {
        match self {
            Part::Library => "library",
            Part::Keeper => "keeper",
            Part::Web => "web",
            Part::Command => "command",
        }
    }
}

/// The value of the field `level`, and the word of a line of text.
pub const fn word(level: Level) -> &'static str {
    match level {
        Level::Off => "off",
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For who reads along: `memcuda: warning: ...`.
    Text,
    /// For a file: the same behind the time in UTC.
    Dated,
    /// One object of schema `memcuda.log/1`.
    Json,
}

impl Form {
    /// As `MEMCUDA_LOG_FORMAT` and `MEMCUDA_LOG_FILE` say.
    pub fn of(json: bool, file: bool) -> Self {
        match (json, file) {
            (true, _) => Form::Json,
            (false, true) => Form::Dated,
            (false, false) => Form::Text,
        }
    }

    /// What ends a line, to be written even where it was cut.
    pub const fn end(self) -> &'static str {
        match self {
            Form::Json => "\"}\n",
            Form::Text | Form::Dated => "\n",
        }
    }
}

/// Who says something, how gravely, and when.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// How grave it is.
    pub level: Level,
    /// Who says it.
    pub part: Part,
    /// Its process.
    pub pid: u32,
    /// Since the Unix epoch.
    pub time: Duration,
}

/// Writes a line without its [`Form::end`]. An error is the writer's: it is full.
pub fn write(
    out: &mut impl Write,
    form: Form,
    head: &Head,
    message: fmt::Arguments<'_>,
) -> fmt::Result {
    let level = word(head.level);
    if form == Form::Json {
        let (part, pid, time) = (head.part.word(), head.pid, head.time.as_micros());
        write!(
            out,
            "{{\"schema\":\"memcuda.log/1\",\"level\":\"{level}\",\"time_us\":{time},\"pid\":{pid},\
             \"part\":\"{part}\",\"message\":\""
        )?;
        return Escaped(out).write_fmt(message);
    }
    if form == Form::Dated {
        date(out, head.time)?;
    }
    match head.part {
        Part::Library | Part::Command => write!(out, "memcuda: {level}: ")?,
        part => write!(out, "memcuda {}: {level}: ", part.word())?,
    }
    OneLine(out).write_fmt(message)
}

/// `2026-11-21T15:42:01.123Z `.
fn date(out: &mut impl Write, time: Duration) -> fmt::Result {
    let (days, rest) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    // Days since 1 March of the year 0, in which leap days end their years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (
        day - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let millis = time.subsec_millis();
    write!(
        out,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z "
    )
}

/// The inside of a string of JSON.
struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for c in text.chars() {
            match c {
                '"' => self.0.write_str("\\\"")?,
                '\\' => self.0.write_str("\\\\")?,
                c if c < ' ' => {
                    let digit = |value: u32| HEX[value as usize & 15];
                    let escape = [
                        b'\\',
                        b'u',
                        b'0',
                        b'0',
                        digit(c as u32 >> 4),
                        digit(c as u32),
                    ];
                    self.0
                        .write_str(std::str::from_utf8(&escape).unwrap_or("?"))?;
                }
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Text that stays one line: what would move a terminal is shown as `?`.
struct OneLine<'a, W>(&'a mut W);

impl<W: Write> Write for OneLine<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars()
            .try_for_each(|c| self.0.write_char(if c.is_control() { '?' } else { c }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Form, part: Part, level: Level, message: &str) -> String {
        let time = Duration::from_micros(1_795_275_721_123_456);
        let head = Head {
            level,
            part,
            pid: 7,
            time,
        };
        let mut line = String::new();
        write(&mut line, form, &head, format_args!("{message}")).unwrap();
        line + form.end()
    }

    #[test]
    fn a_line_says_who_how_gravely_and_what() {
        assert_eq!(
            line(Form::Text, Part::Library, Level::Warn, "said"),
            "memcuda: warning: said\n"
        );
        assert_eq!(
            line(Form::Dated, Part::Keeper, Level::Info, "said"),
            "2026-11-21T15:42:01.123Z memcuda keeper: info: said\n"
        );
        assert_eq!(
            line(Form::Json, Part::Web, Level::Error, "said"),
            "{\"schema\":\"memcuda.log/1\",\"level\":\"error\",\"time_us\":1795275721123456,\
             \"pid\":7,\"part\":\"web\",\"message\":\"said\"}\n"
        );
    }

    #[test]
    fn whatever_is_said_is_one_line_and_one_object() {
        let odd = "a\"b\\c\nd\u{1b}[31m\u{7f}é";
        assert!(
            line(Form::Json, Part::Command, Level::Debug, odd)
                .contains("a\\\"b\\\\c\\u000ad\\u001b[31m\u{7f}é\"}\n")
        );
        assert_eq!(
            line(Form::Text, Part::Command, Level::Debug, odd),
            "memcuda: debug: a\"b\\c?d?[31m?é\n"
        );
    }

    #[test]
    fn dates_know_leap_years() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z "),
            (951_782_399, "2000-02-28T23:59:59.000Z "),
            (951_782_400, "2000-02-29T00:00:00.000Z "),
            (1_709_164_800, "2024-02-29T00:00:00.000Z "),
            (1_735_689_599, "2024-12-31T23:59:59.000Z "),
            (4_107_542_400, "2100-03-01T00:00:00.000Z "),
        ] {
            let mut text = String::new();
            date(&mut text, Duration::from_secs(seconds)).unwrap();
            assert_eq!(text, expected);
        }
    }
}
