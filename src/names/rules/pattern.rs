//! A text with `*` for any part of it.

/// Matches whole texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

impl Pattern {
    /// `None` where it is empty, or has too many parts to be meant.
    pub fn new(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split('*').map(str::to_owned).collect();
        (!text.is_empty() && parts.len() <= 16).then_some(Self(parts))
    }

    /// Does the whole of a text match?
    pub fn holds(&self, text: &str) -> bool {
        let (first, rest) = self.0.split_first().expect("one part at least");
        let Some(mut left) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        let Some((last, between)) = rest.split_last() else {
            return left.is_empty();
        };
        // The earliest place of each part leaves most for the parts behind it.
        for part in between {
            let Some(at) = left.find(part.as_str()) else {
                return false;
            };
            left = &left[at + part.len()..];
        }
        left.ends_with(last.as_str())
    }
}
