//! What peers are said to hold.

use std::fmt;
use std::str::FromStr;

use allranks_core::{Dtype, UnknownName};

/// What the peers of the one rank that runs contribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    /// Every peer holds what this rank holds.
    Uniform,
    /// Every peer holds zeros.
    Zeros,
    /// Every peer holds NaN; zeros in dtypes that have no NaN (integers and bool).
    Nan,
}

impl Fill {
    /// Every rule.
    pub const ALL: [Fill; 3] = [Fill::Uniform, Fill::Zeros, Fill::Nan];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Fill::Uniform => "uniform",
            Fill::Zeros => "zeros",
            Fill::Nan => "nan",
        }
    }

    /// The bytes that a peer's elements consist of, repeated; for [`Fill::Uniform`], where nothing else is known,
    /// zeros.
    pub(crate) const fn pattern(self, dtype: Dtype) -> &'static [u8] {
        match self {
            Fill::Uniform | Fill::Zeros => &[0],
            Fill::Nan => nan(dtype),
        }
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fill {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = Fill::ALL.into_iter().find(|fill| fill.name() == text);
        found.ok_or_else(|| UnknownName { what: "fill rule", name: text.to_owned() })
    }
}

/// A quiet NaN in little-endian order (both parts of a complex number); a zero byte where there is no NaN.
const fn nan(dtype: Dtype) -> &'static [u8] {
    const F64: [u8; 8] = f64::NAN.to_ne_bytes();
    const F32: [u8; 4] = f32::NAN.to_ne_bytes();
    const F16: [u8; 2] = 0x7e00_u16.to_ne_bytes();
    const BF16: [u8; 2] = 0x7fc0_u16.to_ne_bytes();
    match dtype {
        Dtype::Float64 | Dtype::Complex128 => &F64,
        Dtype::Float32 | Dtype::Complex64 => &F32,
        Dtype::Float16 | Dtype::Complex32 => &F16,
        Dtype::Bfloat16 => &BF16,
        Dtype::Float8E4m3fn | Dtype::Float8E5m2 => &[0x7f],
        Dtype::Float8E4m3fnuz | Dtype::Float8E5m2fnuz => &[0x80],
        Dtype::Float8E8m0fnu => &[0xff],
        Dtype::Int64
        | Dtype::Int32
        | Dtype::Int16
        | Dtype::Int8
        | Dtype::Uint64
        | Dtype::Uint32
        | Dtype::Uint16
        | Dtype::Uint8
        | Dtype::Bool => &[0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_has_a_nan() {
        for dtype in Dtype::ALL {
            let pattern = Fill::Nan.pattern(dtype);
            assert_eq!(dtype.size() % pattern.len(), 0);
            assert_eq!(pattern != [0], dtype.is_float(), "{dtype}");
        }
    }
}
