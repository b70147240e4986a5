//! What slices may hold.

use allranks_core::Dtype;

/// An element type of slices. Sealed: the engine reinterprets memory by it.
pub trait Element: Copy + Send + private::Sealed + 'static {
    /// The dtype of the same representation.
    const DTYPE: Dtype;
}

mod private {
    pub trait Sealed {}
}

macro_rules! element {
    ($($t:ty => $dtype:ident),+ $(,)?) => {
        $(
            impl private::Sealed for $t {}
            impl Element for $t {
                const DTYPE: Dtype = Dtype::$dtype;
            }
        )+
    };
}

element! {
    f64 => Float64, f32 => Float32, i64 => Int64, i32 => Int32, i16 => Int16, i8 => Int8,
    u64 => Uint64, u32 => Uint32, u16 => Uint16, u8 => Uint8,
}
