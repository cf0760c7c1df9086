//! What blocks and events of PyTorch's memory viewer have in common: the frames of a stack,
//! and how streams are counted. Knows no picture.

use std::io::Result;

use super::pickle::Pickle;

/// A frame: what was called, and where.
pub fn frame(p: &mut Pickle<'_>, name: &str, place: &str) -> Result<()> {
    let (file, line) = file_and_line(place);
    p.dict(|p| {
        p.texts(&[("filename", file), ("name", name)])?;
        p.numbers(&[("line", line)])
    })
}

/// `FILE:LINE`, as functions of Python have it; others have no line.
fn file_and_line(place: &str) -> (&str, u64) {
    let parts = place.rsplit_once(':');
    let parts = parts.and_then(|(file, line)| Some((file, line.parse().ok()?)));
    parts.unwrap_or((place, 0))
}

/// A stream as the viewer counts them: the default one is 0.
pub fn number(stream: u64) -> u64 {
    match stream {
        1 => 0,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::file_and_line;

    #[test]
    fn functions_of_python_have_a_line() {
        assert_eq!(file_and_line("/a/b.py:17"), ("/a/b.py", 17));
        assert_eq!(file_and_line("<string>:1"), ("<string>", 1));
        assert_eq!(file_and_line("libtorch.so"), ("libtorch.so", 0));
        assert_eq!(file_and_line("a:b"), ("a:b", 0));
    }
}
