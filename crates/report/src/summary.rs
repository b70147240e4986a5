//! The closing line of a run.

use std::fmt::Write as _;
use std::time::Duration;

use allranks_core::{Bytes, GlobalRank, OpKind, UnknownName, WorldSize};

/// What the outputs of a faked operation hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillRule {
    /// Every peer holds what this rank holds.
    Uniform,
    /// Zeros.
    Zeros,
    /// NaN; zero in dtypes that have none.
    Nan,
}

impl FillRule {
    /// Every rule.
    pub const ALL: [FillRule; 3] = [FillRule::Uniform, FillRule::Zeros, FillRule::Nan];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            FillRule::Uniform => "uniform",
            FillRule::Zeros => "zeros",
            FillRule::Nan => "nan",
        }
    }

    /// The rule in words.
    pub const fn meaning(self) -> &'static str {
        match self {
            FillRule::Uniform => "as if every peer held what this rank holds",
            FillRule::Zeros => "zeros from every peer",
            FillRule::Nan => "NaN from every peer",
        }
    }
}

impl std::str::FromStr for FillRule {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.into_iter().find(|rule| rule.name() == text);
        found.ok_or_else(|| UnknownName { what: "fill rule", name: text.to_owned() })
    }
}

/// Which ranks ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every rank, with real data.
    AllRanks,
    /// One rank of a world that does not exist.
    OneRank {
        /// Which.
        rank: GlobalRank,
        /// What its peers are said to hold.
        fill: FillRule,
    },
}

/// What would travel inside one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTraffic {
    /// The group's name or description.
    pub name: String,
    /// How many members it has.
    pub size: u32,
    /// Bytes that a real backend would have to move between its members (in one-rank mode: to and from this rank).
    pub bytes: Bytes,
}

/// A run that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which ranks ran.
    pub scope: Scope,
    /// How many ranks the program sees.
    pub world: WorldSize,
    /// Wall time.
    pub elapsed: Duration,
    /// Operations by kind, a collective counted once however many ranks took part; the order is kept, zeros are left out.
    pub operations: Vec<(OpKind, u64)>,
    /// Traffic by group; shown in order of bytes, then name.
    pub groups: Vec<GroupTraffic>,
    /// The seed of the schedule.
    pub seed: u64,
    /// The policy of the schedule, unless it is the default one.
    pub schedule: Option<String>,
    /// Error findings.
    pub errors: usize,
    /// Warning findings.
    pub warnings: usize,
}

/// Groups that are shown by name; the rest is summed up.
const GROUPS_SHOWN: usize = 3;

impl Summary {
    /// One line, without the line end:
    /// `allranks: 4 ranks in 1.52 s; 12 all_reduce, 4 barrier; would move 12.0 MiB in world (4); seed 0`.
    pub fn render(&self) -> String {
        let mut line = String::from("allranks: ");
        let seconds = self.elapsed.as_secs_f64();
        match self.scope {
            Scope::AllRanks if self.world.0 == 1 => line.push_str("1 rank"),
            Scope::AllRanks => put(&mut line, format_args!("{} ranks", self.world)),
            Scope::OneRank { rank, .. } => put(&mut line, format_args!("rank {rank} of {}", self.world)),
        }
        put(&mut line, format_args!(" in {seconds:.2} s; {}", self.operations_text()));
        if let Some(traffic) = self.traffic_text() {
            put(&mut line, format_args!("; would move {traffic}"));
        }
        if let Scope::OneRank { fill, .. } = self.scope {
            put(&mut line, format_args!("; values are fake (fill {}: {})", fill.name(), fill.meaning()));
        }
        if let Some(schedule) = &self.schedule {
            put(&mut line, format_args!("; schedule {schedule}"));
        }
        put(&mut line, format_args!("; seed {}", self.seed));
        for (count, noun) in [(self.errors, "error"), (self.warnings, "warning")] {
            if count > 0 {
                put(&mut line, format_args!("; {count} {noun}{}", if count == 1 { "" } else { "s" }));
            }
        }
        line
    }

    fn operations_text(&self) -> String {
        let counts = self.operations.iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{n} {kind}"));
        let text = counts.collect::<Vec<_>>().join(", ");
        if text.is_empty() { "no operations".to_owned() } else { text }
    }

    fn traffic_text(&self) -> Option<String> {
        let mut groups: Vec<&GroupTraffic> = self.groups.iter().filter(|g| g.bytes.0 > 0).collect();
        groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        // A single group left over is named too: its name is as short as "1 more group".
        let shown = if groups.len() == GROUPS_SHOWN + 1 { groups.len() } else { GROUPS_SHOWN };
        let mut parts: Vec<String> =
            groups.iter().take(shown).map(|g| format!("{} in {} ({})", g.bytes.human(), g.name, g.size)).collect();
        let rest = groups.get(shown..).unwrap_or_default();
        if !rest.is_empty() {
            let bytes = Bytes(rest.iter().map(|g| g.bytes.0).sum());
            parts.push(format!("{} in {} more groups", bytes.human(), rest.len()));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn put(line: &mut String, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("writing to a string cannot fail");
}
