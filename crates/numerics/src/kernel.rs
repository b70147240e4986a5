//! What is done to one element: load, combine, finish, store.

use std::marker::PhantomData;

use crate::elem::Elem;

/// A fold over the ranks' elements. The fold stays in `Acc` from the first `load` to the `store`.
pub(crate) trait Kernel: Copy + Send + Sync {
    type Stored: Copy + Send + Sync + 'static;
    type Acc: Copy + Send + Sync;

    fn load(&self, x: Self::Stored) -> Self::Acc;
    /// `own` is the left operand.
    fn step(&self, own: Self::Stored, acc: Self::Acc) -> Self::Acc;
    fn store(&self, acc: Self::Acc) -> Self::Stored;
    /// `step` in fewer instructions; where a block of results holds one that is `doubtful`, it is folded again by
    /// `step`.
    #[inline(always)]
    fn quick_step(&self, own: Self::Stored, acc: Self::Acc) -> Self::Acc {
        self.step(own, acc)
    }
    /// `quick_step` may have led to another result than `step`.
    #[inline(always)]
    fn doubtful(&self, _result: Self::Stored) -> bool {
        false
    }
    /// The result if there is but one rank.
    #[inline(always)]
    fn alone(&self, x: Self::Stored) -> Self::Stored {
        self.store(self.load(x))
    }
    /// Last touch to a block of results; `first` is its place in a flat buffer of `total` elements.
    #[inline(always)]
    fn patch(&self, _block: &mut [Self::Stored], _first: usize, _total: usize) {}
}

/// A binary operation on wide values.
pub(crate) trait Binary: Copy + Send + Sync {
    fn apply<E: Elem>(left: E::Wide, right: E::Wide) -> E::Wide;
    /// As [`Elem::quick_add`].
    #[inline(always)]
    fn quick<E: Elem>(left: E::Wide, right: E::Wide) -> E::Wide {
        E::round(Self::apply::<E>(left, right))
    }
}

/// Addition.
#[derive(Clone, Copy)]
pub(crate) struct Add;
/// Multiplication.
#[derive(Clone, Copy)]
pub(crate) struct Mul;

impl Binary for Add {
    #[inline(always)]
    fn apply<E: Elem>(left: E::Wide, right: E::Wide) -> E::Wide {
        E::add(left, right)
    }
    #[inline(always)]
    fn quick<E: Elem>(left: E::Wide, right: E::Wide) -> E::Wide {
        E::quick_round(E::quick_add(left, right))
    }
}

impl Binary for Mul {
    #[inline(always)]
    fn apply<E: Elem>(left: E::Wide, right: E::Wide) -> E::Wide {
        E::mul(left, right)
    }
}

/// SUM and PRODUCT.
#[derive(Clone, Copy)]
pub(crate) struct Arith<E, B>(pub(crate) PhantomData<(E, B)>);

impl<E: Elem, B: Binary> Kernel for Arith<E, B> {
    type Stored = E;
    type Acc = E::Wide;

    #[inline(always)]
    fn load(&self, x: E) -> E::Wide {
        x.widen()
    }
    #[inline(always)]
    fn step(&self, own: E, acc: E::Wide) -> E::Wide {
        E::round(B::apply::<E>(own.widen(), acc))
    }
    #[inline(always)]
    fn store(&self, acc: E::Wide) -> E {
        E::narrow(acc)
    }
    #[inline(always)]
    fn quick_step(&self, own: E, acc: E::Wide) -> E::Wide {
        B::quick::<E>(own.widen(), acc)
    }
    #[inline(always)]
    fn doubtful(&self, result: E) -> bool {
        result.is_nan()
    }
    /// Nothing is computed, so a NaN keeps its bits.
    #[inline(always)]
    fn alone(&self, x: E) -> E {
        x
    }
}

/// AVG: SUM, then one division by the number of ranks.
#[derive(Clone, Copy)]
pub(crate) struct Average<E> {
    pub(crate) ranks: usize,
    /// As torch divides after gloo's ring.
    pub(crate) torch: bool,
    pub(crate) elem: PhantomData<E>,
}

impl<E: Elem> Kernel for Average<E> {
    type Stored = E;
    type Acc = E::Wide;

    #[inline(always)]
    fn load(&self, x: E) -> E::Wide {
        x.widen()
    }
    #[inline(always)]
    fn step(&self, own: E, acc: E::Wide) -> E::Wide {
        E::round(E::add(own.widen(), acc))
    }
    #[inline(always)]
    fn store(&self, acc: E::Wide) -> E {
        E::narrow(E::round(E::div_count(acc, self.ranks)))
    }
    #[inline(always)]
    fn quick_step(&self, own: E, acc: E::Wide) -> E::Wide {
        E::quick_round(E::quick_add(own.widen(), acc))
    }
    #[inline(always)]
    fn doubtful(&self, result: E) -> bool {
        result.is_nan()
    }
    #[inline(always)]
    fn alone(&self, x: E) -> E {
        x.average_alone()
    }
    #[inline(always)]
    fn patch(&self, block: &mut [E], first: usize, total: usize) {
        if self.torch {
            E::patch_average(block, first, total);
        }
    }
}

/// PREMUL_SUM: each element times a factor, rounded, then SUM.
#[derive(Clone, Copy)]
pub(crate) struct Premul<E: Elem> {
    pub(crate) factor: E::Wide,
}

impl<E: Elem> Kernel for Premul<E> {
    type Stored = E;
    type Acc = E::Wide;

    #[inline(always)]
    fn load(&self, x: E) -> E::Wide {
        E::round(E::mul(x.widen(), self.factor))
    }
    #[inline(always)]
    fn step(&self, own: E, acc: E::Wide) -> E::Wide {
        E::round(E::add(self.load(own), acc))
    }
    #[inline(always)]
    fn store(&self, acc: E::Wide) -> E {
        E::narrow(acc)
    }
}

/// MAX if `MAX`, else MIN, by moving bits. Where the two compare equal or one is NaN, the left operand stays, as
/// `std::max` has it; if `SKIP_NAN`, a NaN loses against a number.
#[derive(Clone, Copy)]
pub(crate) struct Pick<E, const MAX: bool, const SKIP_NAN: bool>(pub(crate) PhantomData<E>);

impl<E: Elem, const MAX: bool, const SKIP_NAN: bool> Kernel for Pick<E, MAX, SKIP_NAN> {
    type Stored = E;
    type Acc = E;

    #[inline(always)]
    fn load(&self, x: E) -> E {
        x
    }
    #[inline(always)]
    fn step(&self, own: E, acc: E) -> E {
        let take = if MAX { E::less(own, acc) } else { E::less(acc, own) };
        if take || (SKIP_NAN && own.is_nan()) { acc } else { own }
    }
    #[inline(always)]
    fn store(&self, acc: E) -> E {
        acc
    }
}

macro_rules! bitwise {
    ($name:ident, $doc:literal, $op:tt) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub(crate) struct $name<E>(pub(crate) PhantomData<E>);

        impl<E> Kernel for $name<E>
        where
            E: Elem + std::ops::BitAnd<Output = E> + std::ops::BitOr<Output = E> + std::ops::BitXor<Output = E>,
        {
            type Stored = E;
            type Acc = E;

            #[inline(always)]
            fn load(&self, x: E) -> E {
                x
            }
            #[inline(always)]
            fn step(&self, own: E, acc: E) -> E {
                own $op acc
            }
            #[inline(always)]
            fn store(&self, acc: E) -> E {
                acc
            }
        }
    };
}

bitwise!(Band, "BAND.", &);
bitwise!(Bor, "BOR.", |);
bitwise!(Bxor, "BXOR.", ^);
