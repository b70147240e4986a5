//! The same operations, from crossed source lines.

use std::sync::Arc;

use allranks_core::{CallSite, Finding, FindingId, GlobalRank, Location, OpKind, OpRecord, Seq, Severity};
use indexmap::IndexMap;

use crate::describe::{describe, location};

/// Looks for two ranks that came from source lines A and then B, while another rank came from B and then A, in
/// operations that look the same otherwise: data of one line was most likely combined with data of the other.
///
/// `histories` has the collectives of each member in order, from one start. A branch on the rank makes ranks come
/// from different lines quite legally, so this speaks up only where each of the lines was passed exactly once by every
/// rank (no loop), in operations where all members play the same part (no root), and where the order is crossed.
/// A warning: no backend notices.
pub fn crossed_sites(group: &Arc<str>, histories: &[Vec<Arc<OpRecord>>]) -> Vec<Finding> {
    let alike = |op: &OpRecord| matches!(op.kind, OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter);
    let once: Vec<IndexMap<&CallSite, Option<usize>>> = histories.iter().map(|h| places(h)).collect();
    let mut found = Vec::new();
    let Some((first, others)) = histories.split_first() else { return found };
    let mut seen: Vec<(Seq, GlobalRank)> = Vec::new();
    for (other_index, other) in others.iter().enumerate() {
        for (i, (a, b)) in first.iter().zip(other).enumerate() {
            let (Some(site_a), Some(site_b)) = (&a.site, &b.site) else { continue };
            if site_a == site_b || !alike(a) || a.kind != b.kind {
                continue;
            }
            let at = |who: usize, site: &CallSite| once[who].get(site).copied().flatten();
            // Rank `first` passes B where `other` passes A, later than here.
            let (Some(j), Some(k)) = (at(0, site_b), at(other_index + 1, site_a)) else { continue };
            if j != k || j <= i || seen.contains(&(a.seq, b.rank)) {
                continue;
            }
            seen.push((a.seq, b.rank));
            let pairs = [a, b, &first[j], &other[j]];
            let locations: Vec<Location> = pairs.iter().filter_map(|op| location(op)).collect();
            found.push(Finding {
                id: FindingId::CallSitesDiffer,
                severity: Severity::Warning,
                headline: format!(
                    "{} #{} and #{} on group {group}: ranks {} and {} come from the same two lines in opposite order",
                    describe(a),
                    a.seq,
                    first[j].seq,
                    a.rank,
                    b.rank
                ),
                ranks: [a.rank, b.rank].into_iter().collect(),
                group: Some(group.clone()),
                op: Some(a.kind),
                seq: Some(a.seq),
                locations,
                hints: vec!["issue the operations of a group in the same order on every rank".to_owned()],
                rule: "all backends combine operations by position, not by line".to_owned(),
            });
        }
    }
    found
}

/// Where each line was passed; `None` if more than once.
fn places(history: &[Arc<OpRecord>]) -> IndexMap<&CallSite, Option<usize>> {
    let mut places: IndexMap<&CallSite, Option<usize>> = IndexMap::new();
    for (i, op) in history.iter().enumerate() {
        if let Some(site) = &op.site {
            places.entry(site).and_modify(|p| *p = None).or_insert(Some(i));
        }
    }
    places
}
