//! Findings as JSON lines: the format of `--findings FILE`.
//!
//! One object a line, in the order in which the findings were made:
//! `{"id", "severity": "error"|"warning", "headline", "ranks": [..], "group", "op", "seq",
//! "locations": [{"rank", "file", "line", "function", "what"}], "hints": [..], "rule"}`.
//! `group`, `op` and `seq` are null where a finding has none. New keys may be added; none changes its meaning.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use allranks_core::Finding;

/// A findings file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write findings to {path}")]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// One finding as one line, without the line end.
pub fn to_json_line(finding: &Finding) -> String {
    serde_json::to_string(finding).expect("a finding holds only strings, numbers and lists")
}

/// Writes one line a finding.
///
/// # Errors
/// What the writer says.
pub fn write_findings<W: Write>(mut out: W, findings: &[Finding]) -> io::Result<()> {
    for finding in findings {
        writeln!(out, "{}", to_json_line(finding))?;
    }
    out.flush()
}

/// Makes (or truncates) the file and writes the findings; without findings the file is empty.
///
/// # Errors
/// [`WriteError`] with the path and the cause.
pub fn write_findings_file(path: &Path, findings: &[Finding]) -> Result<(), WriteError> {
    let write = || write_findings(BufWriter::new(File::create(path)?), findings);
    write().map_err(|source| WriteError { path: path.to_owned(), source })
}
