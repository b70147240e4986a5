//! Where the text of a user's program comes from.

use std::fs;

/// Source files by the path that Python knows them by.
pub trait SourceText {
    /// The whole file, or `None` where it cannot be read (`<string>`, a deleted file, a zip member).
    fn read(&self, path: &str) -> Option<String>;
}

/// Reads from disk; bytes that are not UTF-8 are replaced.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskSources;

impl SourceText for DiskSources {
    fn read(&self, path: &str) -> Option<String> {
        fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Knows no file: for output that must not depend on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSources;

impl SourceText for NoSources {
    fn read(&self, _path: &str) -> Option<String> {
        None
    }
}

/// The byte range of line `number` (from 1) without its indentation and line end; `None` if it is blank or absent.
pub(crate) fn line_span(text: &str, number: u32) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    let line = text.split_inclusive('\n').enumerate().find_map(|(i, line)| {
        let here = start;
        start += line.len();
        (i + 1 == number as usize).then_some((here, line))
    });
    let (at, line) = line?;
    let trimmed = line.trim();
    let indent = line.len() - line.trim_start().len();
    (!trimmed.is_empty()).then(|| at + indent..at + indent + trimmed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_leave_out_indentation_and_line_ends() {
        let text = "import x\r\n\n    y = 1  \nlast";
        let line = |n| line_span(text, n).map(|span| &text[span]);
        assert_eq!(line(1), Some("import x"));
        assert_eq!(line(2), None);
        assert_eq!(line(3), Some("y = 1"));
        assert_eq!(line(4), Some("last"));
        assert_eq!((line(0), line(5)), (None, None));
    }
}
