//! Values as Python pickles them, protocol 4, in the operations that PyTorch's
//! viewer knows: no frames, lists and dicts in parts, every text once.

use std::collections::HashMap;
use std::io::{Result, Write};

/// Longest part in which a list is appended to: the viewer passes the parts of
/// one to a function as its arguments.
const PART: usize = 1000;

/// Writes one value, opened and closed by its callers.
pub struct Pickle<'a> {
    out: &'a mut dyn Write,
    known: HashMap<String, u32>,
    shared: HashMap<Key, u32>,
    /// How many values can be named again.
    count: u32,
}

/// What values have in common that are the same one.
pub type Key = [u32; 5];

impl<'a> Pickle<'a> {
    /// Begins a pickle.
    pub fn begin(out: &'a mut dyn Write) -> Result<Self> {
        out.write_all(b"\x80\x04")?;
        Ok(Self {
            out,
            known: HashMap::new(),
            shared: HashMap::new(),
            count: 0,
        })
    }

    /// Ends it.
    pub fn end(self) -> Result<()> {
        self.out.write_all(b".")
    }

    pub fn boolean(&mut self, value: bool) -> Result<()> {
        self.out.write_all(if value { b"\x88" } else { b"\x89" })
    }

    pub fn float(&mut self, value: f64) -> Result<()> {
        self.out.write_all(b"G")?;
        self.out.write_all(&value.to_be_bytes())
    }

    pub fn integer(&mut self, value: i64) -> Result<()> {
        match (u8::try_from(value), i32::try_from(value)) {
            (Ok(byte), _) => self.out.write_all(&[b'K', byte]),
            (_, Ok(word)) => self.with(b'J', &word.to_le_bytes()),
            _ => self.with(0x8a, &[&[8], &value.to_le_bytes()[..]].concat()),
        }
    }

    /// A number of bytes or an address.
    pub fn number(&mut self, value: u64) -> Result<()> {
        match i64::try_from(value) {
            Ok(value) => self.integer(value),
            // One byte more, for the sign.
            Err(_) => self.with(0x8a, &[&[9], &value.to_le_bytes()[..], &[0]].concat()),
        }
    }

    pub fn text(&mut self, text: &str) -> Result<()> {
        if let Some(&known) = self.known.get(text) {
            return self.again(known);
        }
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[0x8c, length])?,
            Err(_) => self.with(b'X', &(text.len() as u32).to_le_bytes())?,
        }
        self.out.write_all(text.as_bytes())?;
        let number = self.remember()?;
        self.known.insert(text.to_owned(), number);
        Ok(())
    }

    /// A value that stands in many places: written where it first comes up.
    pub fn shared(&mut self, key: Key, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(&known) = self.shared.get(&key) {
            return self.again(known);
        }
        write(self)?;
        let number = self.remember()?;
        self.shared.insert(key, number);
        Ok(())
    }

    /// Gives the last value a number.
    fn remember(&mut self) -> Result<u32> {
        self.count += 1;
        self.out.write_all(b"\x94")?;
        Ok(self.count - 1)
    }

    /// The value with this number.
    fn again(&mut self, number: u32) -> Result<()> {
        match u8::try_from(number) {
            Ok(number) => self.out.write_all(&[b'h', number]),
            Err(_) => self.with(b'j', &number.to_le_bytes()),
        }
    }

    /// A list; `item` writes each.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        self.out.write_all(b"]")?;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.out.write_all(b"(")?;
            for one in items.by_ref().take(PART) {
                item(self, one)?;
            }
            self.out.write_all(b"e")?;
        }
        Ok(())
    }

    /// A pair of numbers.
    pub fn pair(&mut self, pair: (i64, i64)) -> Result<()> {
        self.integer(pair.0)?;
        self.integer(pair.1)?;
        self.out.write_all(b"\x86")
    }

    /// A dict; `entries` writes keys and values in turn.
    pub fn dict(&mut self, entries: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.out.write_all(b"}(")?;
        entries(self)?;
        self.out.write_all(b"u")
    }

    /// A key of a dict and a number.
    pub fn numbers(&mut self, entries: &[(&str, u64)]) -> Result<()> {
        for &(key, value) in entries {
            self.text(key)?;
            self.number(value)?;
        }
        Ok(())
    }

    /// A key of a dict and a text.
    pub fn texts(&mut self, entries: &[(&str, &str)]) -> Result<()> {
        for &(key, value) in entries {
            self.text(key)?;
            self.text(value)?;
        }
        Ok(())
    }

    fn with(&mut self, operation: u8, bytes: &[u8]) -> Result<()> {
        self.out.write_all(&[operation])?;
        self.out.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// What Python reads.
    fn read(write: impl FnOnce(&mut Pickle<'_>) -> Result<()>) -> String {
        let mut bytes = Vec::new();
        let mut pickle = Pickle::begin(&mut bytes).unwrap();
        write(&mut pickle).unwrap();
        pickle.end().unwrap();
        let script = "import pickle, sys; print(ascii(pickle.load(sys.stdin.buffer)))";
        let mut python = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn python_reads_what_is_written() {
        let numbers = [
            0,
            255,
            256,
            1 << 31,
            (1 << 32) + 7,
            0x7fff_8a00_0000,
            u64::MAX,
        ];
        let read_numbers = read(|p| p.list(numbers, |p, n| p.number(n)));
        assert_eq!(read_numbers, format!("{numbers:?}"));
        let read_signed = read(|p| p.list([-1, -1 << 40], |p, n| p.integer(n)));
        assert_eq!(read_signed, "[-1, -1099511627776]");
        let long = "x".repeat(300);
        let texts = ["a", "", "a", &long, "ä", &long];
        let read_texts = read(|p| p.list(texts, |p, t| p.text(t)));
        assert_eq!(
            read_texts,
            format!("['a', '', 'a', '{long}', '\\xe4', '{long}']")
        );
        let read_dict = read(|p| {
            p.dict(|p| {
                p.texts(&[("b", "c")])?;
                p.numbers(&[("n", 1)])?;
                p.text("t")?;
                p.pair((0, 5))?;
                p.text("f")?;
                p.float(0.5)?;
                p.text("y")?;
                p.boolean(true)
            })
        });
        assert_eq!(
            read_dict,
            "{'b': 'c', 'n': 1, 't': (0, 5), 'f': 0.5, 'y': True}"
        );
        assert_eq!(read(|p| p.list([0; 0], |p, n| p.integer(n))), "[]");
        let keys = [[1; 5], [2; 5], [1; 5], [2; 5]];
        let read_shared = read(|p| {
            p.list(keys, |p, key| {
                p.shared(key, |p| p.list(["a", "b"], |p, text| p.text(text)))
            })
        });
        let one = "['a', 'b']";
        assert_eq!(read_shared, format!("[{one}, {one}, {one}, {one}]"));
    }

    #[test]
    fn many_texts_and_long_lists_are_read() {
        let all: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
        let twice = || all.iter().chain(&all);
        let expected: Vec<String> = twice().map(|text| format!("'{text}'")).collect();
        let found = read(|p| p.list(twice(), |p, text| p.text(text)));
        assert_eq!(found, format!("[{}]", expected.join(", ")));
    }
}
