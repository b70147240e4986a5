//! Element types of tensors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The element type of a buffer, named as torch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are torch's names")]
pub enum Dtype {
    Float64,
    Float32,
    Float16,
    Bfloat16,
    Float8E4m3fn,
    Float8E4m3fnuz,
    Float8E5m2,
    Float8E5m2fnuz,
    Float8E8m0fnu,
    Complex128,
    Complex64,
    /// Two `Float16`; torch's `complex32`.
    Complex32,
    Int64,
    Int32,
    Int16,
    Int8,
    Uint64,
    Uint32,
    Uint16,
    Uint8,
    Bool,
}

/// A dtype that allranks does not know; never guessed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype {0:?}")]
pub struct UnknownDtype(pub String);

impl Dtype {
    /// Every dtype, in declaration order.
    pub const ALL: [Dtype; 21] = [
        Dtype::Float64,
        Dtype::Float32,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Float8E4m3fn,
        Dtype::Float8E4m3fnuz,
        Dtype::Float8E5m2,
        Dtype::Float8E5m2fnuz,
        Dtype::Float8E8m0fnu,
        Dtype::Complex128,
        Dtype::Complex64,
        Dtype::Complex32,
        Dtype::Int64,
        Dtype::Int32,
        Dtype::Int16,
        Dtype::Int8,
        Dtype::Uint64,
        Dtype::Uint32,
        Dtype::Uint16,
        Dtype::Uint8,
        Dtype::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Complex128 => 16,
            Dtype::Float64 | Dtype::Complex64 | Dtype::Int64 | Dtype::Uint64 => 8,
            Dtype::Float32 | Dtype::Complex32 | Dtype::Int32 | Dtype::Uint32 => 4,
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Int16 | Dtype::Uint16 => 2,
            Dtype::Float8E4m3fn
            | Dtype::Float8E4m3fnuz
            | Dtype::Float8E5m2
            | Dtype::Float8E5m2fnuz
            | Dtype::Float8E8m0fnu
            | Dtype::Int8
            | Dtype::Uint8
            | Dtype::Bool => 1,
        }
    }

    /// torch's name without the `torch.` prefix: `float32`, `float8_e4m3fn`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Float64 => "float64",
            Dtype::Float32 => "float32",
            Dtype::Float16 => "float16",
            Dtype::Bfloat16 => "bfloat16",
            Dtype::Float8E4m3fn => "float8_e4m3fn",
            Dtype::Float8E4m3fnuz => "float8_e4m3fnuz",
            Dtype::Float8E5m2 => "float8_e5m2",
            Dtype::Float8E5m2fnuz => "float8_e5m2fnuz",
            Dtype::Float8E8m0fnu => "float8_e8m0fnu",
            Dtype::Complex128 => "complex128",
            Dtype::Complex64 => "complex64",
            Dtype::Complex32 => "complex32",
            Dtype::Int64 => "int64",
            Dtype::Int32 => "int32",
            Dtype::Int16 => "int16",
            Dtype::Int8 => "int8",
            Dtype::Uint64 => "uint64",
            Dtype::Uint32 => "uint32",
            Dtype::Uint16 => "uint16",
            Dtype::Uint8 => "uint8",
            Dtype::Bool => "bool",
        }
    }

    /// Real or complex floating point, fp8 included.
    pub const fn is_float(self) -> bool {
        !matches!(
            self,
            Dtype::Int64
                | Dtype::Int32
                | Dtype::Int16
                | Dtype::Int8
                | Dtype::Uint64
                | Dtype::Uint32
                | Dtype::Uint16
                | Dtype::Uint8
                | Dtype::Bool
        )
    }

    /// Complex numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self, Dtype::Complex128 | Dtype::Complex64 | Dtype::Complex32)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        let name = text.strip_prefix("torch.").unwrap_or(text);
        Dtype::ALL.into_iter().find(|d| d.name() == name).ok_or_else(|| UnknownDtype(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(format!("torch.{dtype}").parse(), Ok(dtype));
        }
        assert!("float31".parse::<Dtype>().is_err());
    }
}
