//! A text that stands for many: of names in access rules and on the command line, of
//! threads and libraries in rules for allocations.

use std::fmt;

/// `*` is any text, `?` any byte; it is held against whole texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// `None` where it is empty.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }

    /// Does this text stand for others than itself?
    pub fn is_meant(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// Does the whole of a text match?
    pub fn holds(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        // Where the last star is, and how much of the text it has taken.
        let mut star = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, t));
                    p += 1;
                }
                Some(&byte) if byte == b'?' || byte == text[t] => {
                    p += 1;
                    t += 1;
                }
                _ => {
                    let Some((at, taken)) = star else {
                        return false;
                    };
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
            }
        }
        pattern[p..].iter().all(|&byte| byte == b'*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("*", "anything/at:all", true),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "aXbXbc", true),
            ("*ab", "aab", true),
            ("?", "ab", false),
            ("a?c", "abc", true),
            ("abc", "abc", true),
        ] {
            let matched = Pattern::new(pattern).unwrap().holds(text);
            assert_eq!(matched, expected, "{pattern} {text}");
        }
        assert_eq!(Pattern::new(""), None);
    }
}
