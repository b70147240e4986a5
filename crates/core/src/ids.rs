//! Ids and units as types.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A rank of the world: what `dist.get_rank()` answers without a group.
    GlobalRank(u32)
}
id! {
    /// A rank inside one group: its position among the group's members.
    GroupRank(u32)
}
id! {
    /// How many ranks there are; never zero.
    WorldSize(u32)
}
id! {
    /// A process group inside one run; the world's default group is an ordinary group.
    GroupId(u32)
}
id! {
    /// The position of an operation in one member's sequence of collectives on one group, from 0.
    Seq(u64)
}
id! {
    /// The tag of a point-to-point message.
    Tag(i64)
}
id! {
    /// A number of bytes.
    Bytes(u64)
}

impl GlobalRank {
    /// The rank as an index into per-rank tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl GroupRank {
    /// The rank as an index into a group's member list.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Bytes {
    /// The number in the largest binary unit that leaves a value of at least one: `1.5 MiB`.
    pub fn human(self) -> String {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let (mut value, mut unit) = (self.0 as f64, 0);
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 { format!("{} B", self.0) } else { format!("{value:.1} {}", UNITS[unit]) }
    }
}
