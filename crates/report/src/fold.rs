//! Equal places of several ranks, as one entry.

use std::collections::BTreeMap;

use allranks_core::{CallSite, Location, RankSet};

/// Ranks that do the same thing on the same source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who.
    pub ranks: RankSet,
    /// Where.
    pub site: CallSite,
    /// What they do there.
    pub what: String,
}

/// Folds locations that differ in the rank only; ordered by the first rank of each place, then by site.
pub fn fold(locations: &[Location]) -> Vec<Place> {
    let mut places: BTreeMap<(&CallSite, &str), RankSet> = BTreeMap::new();
    for location in locations {
        places.entry((&location.site, &location.what)).or_default().insert(location.rank);
    }
    let mut folded: Vec<Place> = places
        .into_iter()
        .map(|((site, what), ranks)| Place { ranks, site: site.clone(), what: what.to_owned() })
        .collect();
    folded.sort_by_key(|place| place.ranks.first());
    folded
}

#[cfg(test)]
mod tests {
    use allranks_core::GlobalRank;

    use super::*;

    fn at(rank: u32, line: u32, what: &str) -> Location {
        let site = CallSite { file: "a.py".into(), line, function: "main".into() };
        Location { rank: GlobalRank(rank), site, what: what.into() }
    }

    #[test]
    fn equal_places_fold_and_keep_the_order_of_first_ranks() {
        let folded = fold(&[at(3, 9, "x"), at(0, 9, "x"), at(1, 5, "y"), at(2, 9, "x"), at(4, 9, "z")]);
        let shown: Vec<String> = folded.iter().map(|p| format!("{} {} {}", p.ranks, p.site, p.what)).collect();
        assert_eq!(shown, ["0,2,3 a.py:9 x", "1 a.py:5 y", "4 a.py:9 z"]);
    }

    #[test]
    fn nothing_folds_to_nothing() {
        assert!(fold(&[]).is_empty());
    }
}
