//! Findings as text: what is wrong, then what each rank did on which source line, then what to do.
//!
//! ```text
//! error[kind-mismatch]: rank 7 calls barrier where ranks 0-6 call all_reduce
//!   --> train.py:31
//!    |
//! 31 |     dist.all_reduce(x)
//!    |     ------------------ ranks 0-6: all_reduce float32 (4,) in main
//! ...
//! 35 |     dist.barrier()
//!    |     ^^^^^^^^^^^^^^ rank 7: barrier in main
//!    |
//!    = note: operation 41 (all_reduce) of group default_pg
//!    = note: rule: definite
//!    = help: ...
//! ```
//! `^` marks the ranks at fault, `-` the others. A file that cannot be read is shown as `file:line` with a note.

use std::sync::Arc;

use allranks_core::{Finding, Severity};
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::fold::{Place, fold};
use crate::source::line_span;
use crate::{Color, SourceText};

/// Places shown in one finding, those of the ranks at fault first; the JSON form has them all.
const PLACES_SHOWN: usize = 12;

/// One finding, without a line end after the last line.
pub fn render_finding(finding: &Finding, sources: &dyn SourceText, color: Color) -> String {
    let mut places = fold(&finding.locations);
    if places.len() > PLACES_SHOWN {
        places.sort_by_key(|place| !at_fault(place, finding));
    }
    let (shown, hidden) = places.split_at(places.len().min(PLACES_SHOWN));
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(finding.headline.as_str()).id(finding.id.name()));
    for (file, places) in by_file(shown) {
        group = with_file(group, file, &places, finding, sources);
    }
    if !hidden.is_empty() {
        let ranks: usize = hidden.iter().map(|place| place.ranks.len()).sum();
        group = group
            .element(Level::NOTE.message(format!("{} more places ({ranks} ranks) are left out here", hidden.len())));
    }
    if let Some(operation) = operation_note(finding) {
        group = group.element(Level::NOTE.message(operation));
    }
    group = group.element(Level::NOTE.message(format!("rule: {}", finding.rule)));
    for hint in &finding.hints {
        group = group.element(Level::HELP.message(hint.as_str()));
    }
    let renderer = match color {
        Color::Never => Renderer::plain(),
        Color::Always => Renderer::styled(),
    };
    renderer.render(&[group])
}

/// All findings, a blank line between two; the empty string for none. Ends with a line end if there is any.
pub fn render_findings(findings: &[Finding], sources: &dyn SourceText, color: Color) -> String {
    let texts: Vec<String> = findings.iter().map(|finding| render_finding(finding, sources, color)).collect();
    if texts.is_empty() { String::new() } else { texts.join("\n\n") + "\n" }
}

/// Places grouped by file, files in order of first appearance.
fn by_file(places: &[Place]) -> Vec<(&Arc<str>, Vec<&Place>)> {
    let mut files: Vec<(&Arc<str>, Vec<&Place>)> = Vec::new();
    for place in places {
        match files.iter_mut().find(|(file, _)| **file == place.site.file) {
            Some((_, of_file)) => of_file.push(place),
            None => files.push((&place.site.file, vec![place])),
        }
    }
    files
}

fn with_file<'a>(
    mut group: Group<'a>,
    file: &'a str,
    places: &[&Place],
    finding: &Finding,
    sources: &dyn SourceText,
) -> Group<'a> {
    let source = sources.read(file);
    let spans: Vec<_> =
        places.iter().map(|place| source.as_deref().and_then(|text| line_span(text, place.site.line))).collect();
    if let Some(text) = source.filter(|_| spans.iter().any(Option::is_some)) {
        let marks = places.iter().zip(&spans).filter_map(|(place, span)| {
            let kind = if at_fault(place, finding) { AnnotationKind::Primary } else { AnnotationKind::Context };
            Some(kind.span(span.clone()?).label(label(place)))
        });
        group = group.element(Snippet::source(text).path(file).fold(true).annotations(marks));
    }
    for (place, _) in places.iter().zip(&spans).filter(|(_, span)| span.is_none()) {
        let origin = Origin::path(file);
        let line = place.site.line as usize;
        group = group.element(if line > 0 { origin.line(line) } else { origin });
        group = group.element(Level::NOTE.message(label(place)));
    }
    group
}

fn at_fault(place: &Place, finding: &Finding) -> bool {
    place.ranks.iter().any(|rank| finding.ranks.contains(rank))
}

fn label(place: &Place) -> String {
    let function: &str = &place.site.function;
    let within = if function.is_empty() || function == "<module>" { String::new() } else { format!(" in {function}") };
    format!("{}: {}{within}", place.ranks.noun(), place.what)
}

fn operation_note(finding: &Finding) -> Option<String> {
    let group = finding.group.as_deref().map(|name| format!(" of group {name}")).unwrap_or_default();
    match (finding.op, finding.seq) {
        (Some(op), Some(seq)) => Some(format!("operation {seq} ({op}){group}")),
        (Some(op), None) => Some(format!("operation {op}{group}")),
        (None, Some(seq)) => Some(format!("operation {seq}{group}")),
        (None, None) => finding.group.as_deref().map(|name| format!("group {name}")),
    }
}
