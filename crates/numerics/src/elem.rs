//! Element types and their arithmetic, to the bit.
//!
//! NaN follows what gloo's loops do on x86-64 (measured): if both operands are NaN the left one wins, made quiet.

/// A stored element. `Wide` is what arithmetic is done in; `round` brings a `Wide` to the values that the stored type
/// has, so that a fold may stay in `Wide` between steps.
pub(crate) trait Elem: Copy + Send + Sync + 'static {
    type Wide: Copy + Send + Sync;

    fn widen(self) -> Self::Wide;
    /// Exact: `w` came out of `round` or `widen`.
    fn narrow(w: Self::Wide) -> Self;
    fn round(w: Self::Wide) -> Self::Wide;
    fn add(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    /// `round` and `add` in fewer instructions. They may give another NaN, but a NaN they give wherever the exact ones
    /// do, and only there: a fold that ends in a number is exact.
    #[inline(always)]
    fn quick_round(w: Self::Wide) -> Self::Wide {
        Self::round(w)
    }
    fn quick_add(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn mul(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    /// Divided by a number of ranks; integers towards zero.
    fn div_count(w: Self::Wide, count: usize) -> Self::Wide;
    /// A number of ranks; integers wrap around.
    fn from_count(count: usize) -> Self::Wide;
    /// The nearest `Wide`; a fraction is cut off if the type is an integer.
    fn from_f64(x: f64) -> Self::Wide;
    fn less(left: Self, right: Self) -> bool;
    fn is_nan(self) -> bool;

    /// The average of one element: a NaN becomes quiet.
    #[inline(always)]
    fn average_alone(self) -> Self {
        Self::narrow(Self::round(Self::div_count(self.widen(), 1)))
    }

    /// What torch's division by the number of ranks leaves where the result is NaN: its vectorised part and its
    /// remainder differ for bfloat16. `first` is the block's place among `total` elements.
    #[inline(always)]
    fn patch_average(_block: &mut [Self], _first: usize, _total: usize) {}
}

macro_rules! float {
    ($t:ty) => {
        impl Elem for $t {
            type Wide = $t;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(w: $t) -> $t {
                w
            }
            #[inline(always)]
            fn round(w: $t) -> $t {
                w
            }
            #[inline(always)]
            fn add(left: $t, right: $t) -> $t {
                let sum = left + right;
                if left.is_nan() { quiet(left) } else { sum }
            }
            #[inline(always)]
            fn quick_add(left: $t, right: $t) -> $t {
                left + right
            }
            #[inline(always)]
            fn mul(left: $t, right: $t) -> $t {
                let product = left * right;
                if left.is_nan() { quiet(left) } else { product }
            }
            #[inline(always)]
            fn div_count(w: $t, count: usize) -> $t {
                w / count as $t
            }
            #[inline(always)]
            fn from_count(count: usize) -> $t {
                count as $t
            }
            #[inline(always)]
            fn from_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn less(left: $t, right: $t) -> bool {
                left < right
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
            #[inline(always)]
            fn average_alone(self) -> $t {
                if <$t>::is_nan(self) { quiet(self) } else { self }
            }
        }
    };
}

/// Sets the bit that makes a NaN quiet.
trait Quiet {
    fn quiet(self) -> Self;
}

impl Quiet for f32 {
    #[inline(always)]
    fn quiet(self) -> f32 {
        f32::from_bits(self.to_bits() | 0x0040_0000)
    }
}

impl Quiet for f64 {
    #[inline(always)]
    fn quiet(self) -> f64 {
        f64::from_bits(self.to_bits() | 0x0008_0000_0000_0000)
    }
}

#[inline(always)]
fn quiet<T: Quiet>(x: T) -> T {
    x.quiet()
}

float!(f32);
float!(f64);

macro_rules! int {
    ($($t:ty),+) => {$(
        impl Elem for $t {
            type Wide = $t;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(w: $t) -> $t {
                w
            }
            #[inline(always)]
            fn round(w: $t) -> $t {
                w
            }
            #[inline(always)]
            fn add(left: $t, right: $t) -> $t {
                left.wrapping_add(right)
            }
            #[inline(always)]
            fn quick_add(left: $t, right: $t) -> $t {
                left.wrapping_add(right)
            }
            #[inline(always)]
            fn mul(left: $t, right: $t) -> $t {
                left.wrapping_mul(right)
            }
            #[inline(always)]
            fn div_count(w: $t, count: usize) -> $t {
                // Wide enough for any sum and any number of ranks (200 ranks are not an i8).
                (i128::from(w) / count as i128) as $t
            }
            #[inline(always)]
            fn from_count(count: usize) -> $t {
                count as $t
            }
            #[inline(always)]
            fn from_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn less(left: $t, right: $t) -> bool {
                left < right
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    )+};
}

int!(u8, u16, u32, u64, i8, i16, i32, i64);
