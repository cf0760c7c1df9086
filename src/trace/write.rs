//! Writes a trace as text. A line is what [`super::Reader`] reads.

use std::fmt::Write;

use super::text::{FIRST_LINE, OWNERS, PROCESS_LINE, USES, VERSION};
use super::{Event, Reader};

/// The columns, in order.
const COLUMNS: &str = "t_us,op,id,bytes,stream,device,uses,owner,thread,caller,name,stack";

/// The lines before the events of a trace, whose first event was read.
pub fn head(of: &Reader<'_>) -> String {
    let mut text = format!("{FIRST_LINE}{VERSION}\n");
    if let (Some((pid, command)), Some(began_us)) = (of.process(), of.began_us()) {
        let _ = write!(text, "{PROCESS_LINE}{pid} {began_us} ");
        text.extend(command.chars().map(fit));
        text.push('\n');
    }
    text + COLUMNS + "\n"
}

/// What separates columns and lines is no part of a word.
fn fit(c: char) -> char {
    match c {
        ',' => ';',
        c if c.is_control() => ' ',
        c => c,
    }
}

/// Adds the line of an event to a text; its words are those of the trace that
/// it was read from.
pub fn line(event: &Event, of: &Reader<'_>, text: &mut String) {
    let Event {
        t_us,
        id,
        bytes,
        stream,
        device,
        ..
    } = event;
    let op = event.op.name();
    // A text takes whatever is written to it.
    let _ = write!(text, "{t_us},{op},{id:x},{bytes},{stream},{device},");
    let uses = USES.iter().find(|(_, uses)| Some(*uses) == event.uses);
    let owner = OWNERS.iter().find(|(_, owner)| Some(*owner) == event.owner);
    text.push_str(uses.map_or("", |(word, _)| word));
    text.push(',');
    text.push_str(owner.map_or("", |(word, _)| word));
    for number in [event.thread, event.caller, event.name] {
        text.push(',');
        text.extend(of.word(number).trim().chars().map(fit));
    }
    text.push(',');
    let stack = of.word(event.stack).trim().chars();
    // What separates functions is no part of one.
    text.extend(stack.map(|c| fit(if c == ',' { '?' } else { c })));
    text.push('\n');
}
