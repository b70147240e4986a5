//! Which classes and dtypes a program has, so that programs of consecutive seeds cover all of them alike.

use std::sync::LazyLock;

use allranks_core::Dtype;

use crate::class::Class;

/// Steps of a program that the deck decides; a few more are drawn freely.
pub(crate) const DEALT: usize = 11;
/// A prime, so that it visits every card whatever their number.
const STRIDE: u64 = 7919;
/// Cards for operations that gloo refuses.
const REFUSED: usize = 18;

/// What one step has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// An operation on a dtype that gloo does.
    Tensor(Class, Dtype),
    /// An operation without a dtype.
    Other(Class),
    /// Any operation that gloo refuses.
    Refused,
}

static DECK: LazyLock<Vec<Card>> = LazyLock::new(|| {
    let mut cards = Vec::new();
    for &class in Class::ALL {
        if class.has_dtype() {
            let takes = |dtype: &Dtype| class.takes(*dtype, false);
            cards.extend(Dtype::ALL.into_iter().filter(takes).map(|dtype| Card::Tensor(class, dtype)));
        } else {
            cards.push(Card::Other(class));
        }
    }
    cards.extend([Card::Refused; REFUSED]);
    cards
});

/// Every card, once.
pub(crate) fn deck() -> &'static [Card] {
    &DECK
}

/// The `k`-th card of the program of a seed.
pub(crate) fn dealt(seed: u64, k: usize) -> Card {
    let cards = deck();
    let position = seed.wrapping_mul(DEALT as u64).wrapping_add(k as u64) % cards.len() as u64;
    cards[(position * STRIDE % cards.len() as u64) as usize]
}
