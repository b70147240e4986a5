//! How often each class met each dtype.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use allranks_core::Dtype;

use crate::class::Class;
use crate::program::Program;

/// Counts of steps that were run on both sides and compared.
#[derive(Clone, Debug, Default)]
pub struct Table {
    programs: usize,
    done: BTreeMap<(Class, Option<Dtype>), usize>,
    refused: BTreeMap<(Class, Option<Dtype>), usize>,
    /// Steps that differed, on some rank.
    differed: BTreeMap<Class, usize>,
}

impl Table {
    /// Adds a program of which the steps in `differing` came out differently.
    pub fn add(&mut self, program: &Program, differing: &BTreeSet<usize>) {
        self.programs += 1;
        for (index, step) in program.steps.iter().enumerate() {
            let counts = if step.refused { &mut self.refused } else { &mut self.done };
            *counts.entry((step.class, step.dtype)).or_default() += 1;
            if differing.contains(&index) {
                *self.differed.entry(step.class).or_default() += 1;
            }
        }
    }

    /// The smallest number of a class, of a dtype, and of a class with a dtype, over all that there are.
    pub fn least(&self) -> (usize, usize, usize) {
        let of = |wanted: &dyn Fn(Class, Option<Dtype>) -> bool| {
            self.done.iter().filter(|((class, dtype), _)| wanted(*class, *dtype)).map(|(_, n)| n).sum::<usize>()
        };
        let classes = Class::ALL.iter().map(|&class| of(&|c, _| c == class)).min();
        let dtypes = Dtype::ALL.iter().map(|&dtype| of(&|_, d| d == Some(dtype))).min();
        let pairs = Class::ALL.iter().flat_map(|&class| {
            let some = Dtype::ALL.into_iter().filter(move |d| class.has_dtype() && class.takes(*d, false)).map(Some);
            some.chain((!class.has_dtype()).then_some(None)).map(move |dtype| (class, dtype))
        });
        let pairs = pairs.map(|pair| self.done.get(&pair).copied().unwrap_or(0)).min();
        (classes.unwrap_or(0), dtypes.unwrap_or(0), pairs.unwrap_or(0))
    }

    /// As text.
    pub fn text(&self) -> String {
        let wide = Class::ALL.iter().map(|class| class.name().len()).max().unwrap_or(0);
        let mut text = format!("{:wide$}", "");
        for dtype in Dtype::ALL {
            let _ = write!(text, " {:>6}", short(dtype));
        }
        text.push_str("   none    all  refused  differ\n");
        for &class in Class::ALL {
            let _ = write!(text, "{:wide$}", class.name());
            let mut all = 0;
            for dtype in Dtype::ALL.map(Some).into_iter().chain([None]) {
                let count = self.done.get(&(class, dtype)).copied().unwrap_or(0);
                all += count;
                let _ = if count == 0 { write!(text, " {:>6}", "-") } else { write!(text, " {count:>6}") };
            }
            let refused: usize = self.refused.iter().filter(|((c, _), _)| *c == class).map(|(_, n)| n).sum();
            let differed = self.differed.get(&class).copied().unwrap_or(0);
            let _ = writeln!(text, " {all:>6} {refused:>8} {differed:>7}");
        }
        let _ = write!(text, "{:wide$}", "all");
        let column = |dtype: Option<Dtype>| self.done.iter().filter(|((_, d), _)| *d == dtype).map(|(_, n)| n).sum();
        for dtype in Dtype::ALL.map(Some).into_iter().chain([None]) {
            let count: usize = column(dtype);
            let _ = write!(text, " {count:>6}");
        }
        let total = |counts: &BTreeMap<(Class, Option<Dtype>), usize>| counts.values().sum::<usize>();
        let differed: usize = self.differed.values().sum();
        let _ = writeln!(text, " {:>6} {:>8} {differed:>7}", total(&self.done), total(&self.refused));
        let (class, dtype, pair) = self.least();
        let _ = writeln!(
            text,
            "{} programs. Each class at least {class} times, each dtype {dtype} times, each pair that gloo does {pair} times.",
            self.programs
        );
        text
    }
}

fn short(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float64 => "f64",
        Dtype::Float32 => "f32",
        Dtype::Float16 => "f16",
        Dtype::Bfloat16 => "bf16",
        Dtype::Float8E4m3fn => "e4m3",
        Dtype::Float8E4m3fnuz => "e4m3z",
        Dtype::Float8E5m2 => "e5m2",
        Dtype::Float8E5m2fnuz => "e5m2z",
        Dtype::Float8E8m0fnu => "e8m0",
        Dtype::Complex128 => "c128",
        Dtype::Complex64 => "c64",
        Dtype::Complex32 => "c32",
        Dtype::Int64 => "i64",
        Dtype::Int32 => "i32",
        Dtype::Int16 => "i16",
        Dtype::Int8 => "i8",
        Dtype::Uint64 => "u64",
        Dtype::Uint32 => "u32",
        Dtype::Uint16 => "u16",
        Dtype::Uint8 => "u8",
        Dtype::Bool => "bool",
    }
}
