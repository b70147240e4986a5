//! What is known of a tensor without its data.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Bytes, Dtype};

/// The sizes of a tensor; the empty shape is a scalar. Prints as Python prints it: `(2, 3)`, `(4,)`, `()`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub SmallVec<[u64; 4]>);

impl Shape {
    /// The number of elements; 1 for a scalar, 0 if any size is 0.
    pub fn numel(&self) -> u64 {
        self.0.iter().product()
    }
}

impl From<&[u64]> for Shape {
    fn from(sizes: &[u64]) -> Self {
        Self(SmallVec::from_slice(sizes))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (i, size) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{size}")?;
        }
        f.write_str(if self.0.len() == 1 { ",)" } else { ")" })
    }
}

/// Dtype and shape of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: Dtype,
    /// Sizes.
    pub shape: Shape,
}

impl TensorMeta {
    /// The bytes of a dense tensor of this kind.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.shape.numel() * self.dtype.size() as u64)
    }
}

impl fmt::Display for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}
