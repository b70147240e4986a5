//! What differs between the two sides of one program.

use std::collections::{BTreeMap, BTreeSet};

use crate::side::{Lost, Reply, Which};

/// Something that one rank saw differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The step; none for an exception that ended the rank.
    pub step: Option<usize>,
    /// The rank.
    pub rank: usize,
    /// What all ranks in one process saw.
    pub ours: String,
    /// What a gloo process saw.
    pub gloo: String,
}

/// Said of a step that a rank did not come to.
const NOTHING: &str = "nothing";
/// Said of a rank that came to its end.
const NO_ERROR: &str = "no error";

/// How a program came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both sides noted the same, and no rank failed.
    Same,
    /// They did not.
    Differs(Vec<Difference>),
    /// allranks found something wrong with a correct program.
    Finding(String),
    /// Ranks failed alike on both sides: the program is not as correct as it claims.
    Failed(String),
    /// A side crashed or hung.
    Lost(Which, String),
}

impl Verdict {
    /// Nothing to look at.
    pub fn is_same(&self) -> bool {
        matches!(self, Verdict::Same)
    }

    /// All that differs is that gloo's processes failed: they ended with an exception, died or hung.
    pub fn is_accident(&self) -> bool {
        match self {
            Verdict::Lost(which, _) => *which == Which::Gloo,
            Verdict::Differs(all) => all.iter().all(|d| d.gloo == NOTHING || (d.step.is_none() && d.ours == NO_ERROR)),
            _ => false,
        }
    }

    /// Whether the other one shows the same problem, so that a smaller program can stand for it.
    pub fn is_like(&self, other: &Verdict) -> bool {
        match (self, other) {
            (Verdict::Lost(a, _), Verdict::Lost(b, _)) => a == b,
            (Verdict::Failed(a), Verdict::Failed(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// The steps that came out differently.
    pub fn steps(&self) -> BTreeSet<usize> {
        match self {
            Verdict::Differs(all) => all.iter().filter_map(|difference| difference.step).collect(),
            _ => BTreeSet::new(),
        }
    }
}

/// Compares what the sides replied.
pub fn compare(ours: &Result<Reply, Lost>, gloo: &Result<Reply, Lost>) -> Verdict {
    let (ours, gloo) = match (ours, gloo) {
        (_, Err(lost)) => return Verdict::Lost(Which::Gloo, lost.0.clone()),
        (Err(lost), _) => return Verdict::Lost(Which::Ours, lost.0.clone()),
        (Ok(ours), Ok(gloo)) => (ours, gloo),
    };
    let mut differences = Vec::new();
    for (rank, (a, b)) in ours.ranks.iter().zip(&gloo.ranks).enumerate() {
        let steps: BTreeSet<usize> = a.notes.keys().chain(b.notes.keys()).copied().collect();
        for step in steps {
            let said = |notes: &BTreeMap<usize, Vec<String>>| {
                notes.get(&step).map_or(NOTHING.to_owned(), |marks| marks.join(" | "))
            };
            if a.notes.get(&step) != b.notes.get(&step) {
                differences.push(Difference { step: Some(step), rank, ours: said(&a.notes), gloo: said(&b.notes) });
            }
        }
        // What an exception says may differ; its type may not.
        let kind = |error: &Option<String>| error.as_deref().map(|e| e.split(':').next().unwrap_or(e).to_owned());
        if kind(&a.error) != kind(&b.error) {
            let text = |error: &Option<String>| error.clone().unwrap_or_else(|| NO_ERROR.to_owned());
            differences.push(Difference { step: None, rank, ours: text(&a.error), gloo: text(&b.error) });
        }
    }
    if !differences.is_empty() {
        return Verdict::Differs(differences);
    }
    if let Some(error) = gloo.ranks.iter().find_map(|rank| rank.error.clone()) {
        return Verdict::Failed(error);
    }
    if !ours.findings.is_empty() {
        return Verdict::Finding(ours.findings.clone());
    }
    Verdict::Same
}
