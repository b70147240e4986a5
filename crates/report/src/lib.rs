//! Findings and runs, made readable: one module per renderer.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`text`] | a [`Finding`](allranks_core::Finding) | lines for a terminal, with the source line each rank stands on |
//! | [`json`] | findings | one JSON object a line, the format of `--findings FILE` |
//! | [`summary`] | a run that ended | the closing line on stderr |
//! | [`reproduce`] | a command line | the same, quoted for a shell |
//!
//! Renderers return a `String` or write to the writer they are given; none prints. Text makes sense without colour,
//! and colour is the caller's choice ([`Color`]): only it knows whether a terminal reads along.

pub mod fold;
pub mod json;
pub mod reproduce;
pub mod source;
pub mod summary;
pub mod text;

pub use fold::Place;
pub use json::{WriteError, to_json_line, write_findings, write_findings_file};
pub use reproduce::shell_quote;
pub use source::{DiskSources, NoSources, SourceText};
pub use summary::{FillRule, GroupTraffic, Scope, Summary};
pub use text::{render_finding, render_findings};

/// Whether a renderer may emit terminal escapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// Plain text.
    #[default]
    Never,
    /// ANSI escapes.
    Always,
}
