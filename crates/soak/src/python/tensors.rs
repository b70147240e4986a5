//! Expressions that make tensors.

use std::fmt::Write as _;

use crate::program::{Layout, Source, Step};

/// Outputs begin at this slot; what is in them before the operation differs from every input.
const OUTPUTS: usize = 2048;
/// Slots between the lists of an operation on several lists.
const LIST: usize = 64;

/// Python's name of a dtype.
fn dtype(step: &Step) -> &'static str {
    step.dtype.expect("checked: operations on tensors have a dtype").name()
}

/// A tuple of expressions.
pub(super) fn tuple<T: ToString>(items: &[T]) -> String {
    let mut text = String::from("(");
    for item in items {
        let _ = write!(text, "{}, ", item.to_string());
    }
    let end = if items.len() == 1 { text.len() - 1 } else { text.len() - 2.min(text.len() - 1) };
    text.truncate(end);
    text + ")"
}

/// The shape of a part whose first dimension is an expression.
pub(super) fn rows_of(step: &Step, first: &str) -> String {
    let rest = step.shape.iter().skip(1).map(ToString::to_string);
    tuple(&std::iter::once(first.to_owned()).chain(rest).collect::<Vec<_>>())
}

fn made(step: &Step, shape: &str, slot: &str, layout: Layout, odd: bool) -> String {
    let layout = if layout == Layout::Plain { String::new() } else { format!(", \"{}\"", layout.name()) };
    let odd = if odd { ", odd=True" } else { "" };
    format!("made(rank, \"{}\", {shape}, {}, {slot}{layout}{odd})", dtype(step), step.key)
}

/// The input `slot`; the first may come from an earlier step.
pub(super) fn input(step: &Step, shape: &str, slot: usize) -> String {
    match step.source {
        Source::Bytes(from) if slot == 0 => {
            let layout =
                if step.layout == Layout::Plain { String::new() } else { format!(", \"{}\"", step.layout.name()) };
            format!("fed(x{from}, \"{}\", {shape}{layout})", dtype(step))
        }
        Source::Same(from) if slot == 0 => format!("x{from}"),
        _ => made(step, shape, &slot.to_string(), step.layout, step.odd),
    }
}

/// A list of `n` inputs; `shape` is that of the one with an index.
pub(super) fn inputs(step: &Step, shape: &dyn Fn(&str) -> String, n: usize) -> String {
    let each = made(step, &shape("i"), "i", step.layout, step.odd);
    match step.source {
        Source::Fresh => format!("[{each} for i in range({n})]"),
        _ => format!("[{}] + [{each} for i in range(1, {n})]", input(step, &shape("0"), 0)),
    }
}

/// The output `slot`.
pub(super) fn output(step: &Step, shape: &str, slot: usize) -> String {
    made(step, shape, &(OUTPUTS + slot).to_string(), step.out_layout, false)
}

/// A list of `n` outputs; `shape` may name the index `i`.
pub(super) fn outputs(step: &Step, shape: &str, n: usize) -> String {
    format!("[{} for i in range({n})]", made(step, shape, &format!("{OUTPUTS} + i"), step.out_layout, false))
}

/// For each of `n` members, a list of `count` outputs.
pub(super) fn output_lists(step: &Step, shapes: &str, n: usize, count: usize) -> String {
    let slot = format!("{OUTPUTS} + {LIST} * i + j");
    let each = made(step, shapes, &slot, step.out_layout, false);
    format!("[[{each} for j in range({count})] for i in range({n})]")
}

/// A tensor of a message.
pub(super) fn message(step: &Step, shape: &[usize], k: usize, sent: bool) -> String {
    let (slot, layout) = if sent { (k, step.layout) } else { (OUTPUTS + k, step.out_layout) };
    made(step, &tuple(shape), &slot.to_string(), layout, sent && step.odd)
}
