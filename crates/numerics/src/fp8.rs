//! The five 8-bit floats of torch: conversions to and from f32, as torch makes them.
//!
//! | type | bias | NaN | infinity | too large becomes |
//! |---|---|---|---|---|
//! | e4m3fn | 7 | `0x7f`, `0xff` | none | the greatest number, infinity too |
//! | e4m3fnuz | 8 | `0x80` | none | NaN |
//! | e5m2 | 15 | above `0x7c` | `0x7c`, `0xfc` | infinity |
//! | e5m2fnuz | 16 | `0x80` | none | NaN |
//! | e8m0fnu | 127 | `0xff` | none | NaN |
//!
//! Tested against torch on every byte, and on floats around every rounding boundary (`data/fp8.tsv`).

use crate::elem::Elem;

/// Shape of a type with a sign: fraction bits, bias, greatest finite magnitude and what lies above it.
struct Shape {
    fraction: u32,
    bias: i32,
    greatest: u8,
    beyond: u8,
    /// One NaN at `0x80`, no negative zero.
    fnuz: bool,
}

const E4M3FN: Shape = Shape { fraction: 3, bias: 7, greatest: 0x7e, beyond: 0x7e, fnuz: false };
const E4M3FNUZ: Shape = Shape { fraction: 3, bias: 8, greatest: 0x7f, beyond: 0x80, fnuz: true };
const E5M2: Shape = Shape { fraction: 2, bias: 15, greatest: 0x7b, beyond: 0x7c, fnuz: false };
const E5M2FNUZ: Shape = Shape { fraction: 2, bias: 16, greatest: 0x7f, beyond: 0x80, fnuz: true };

impl Shape {
    const fn is_nan(&self, byte: u8) -> bool {
        if self.fnuz {
            byte == 0x80
        } else if self.beyond == 0x7c {
            byte & 0x7f > 0x7c
        } else {
            byte & 0x7f == 0x7f
        }
    }

    const fn decode(&self, byte: u8) -> f32 {
        if self.is_nan(byte) {
            return f32::NAN;
        }
        let sign = (byte as u32 >> 7) << 31;
        let magnitude = (byte & 0x7f) as u32;
        if self.beyond == 0x7c && magnitude == 0x7c {
            return f32::from_bits(sign | 0x7f80_0000);
        }
        let exponent = (magnitude >> self.fraction) as i32;
        let fraction = magnitude & ((1 << self.fraction) - 1);
        let (significand, power) = if exponent == 0 {
            (fraction, 1 - self.bias - self.fraction as i32)
        } else {
            (fraction | 1 << self.fraction, exponent - self.bias - self.fraction as i32)
        };
        let unit = f32::from_bits(((127 + power) as u32) << 23);
        f32::from_bits((significand as f32 * unit).to_bits() | sign)
    }

    const fn table(&self) -> [f32; 256] {
        let mut table = [0.0; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = self.decode(byte as u8);
            byte += 1;
        }
        table
    }

    /// Rounds to nearest, ties to even.
    fn encode(&self, x: f32) -> u8 {
        let sign = (x.to_bits() >> 31 << 7) as u8;
        if x.is_nan() {
            return if self.fnuz { 0x80 } else { sign | 0x7f };
        }
        let magnitude = f32::from_bits(x.to_bits() & 0x7fff_ffff);
        let least = (127 + 1 - self.bias) as u32;
        let exponent = (magnitude.to_bits() >> 23).max(least);
        if exponent >= 254 - 23 {
            return self.overflow(sign);
        }
        // Adding this power of two leaves `fraction` bits; its own bits fall away again below.
        let unit = f32::from_bits((exponent + 23 - self.fraction) << 23);
        let count = (magnitude + unit).to_bits() - unit.to_bits();
        // `count` is in units of the last place at `exponent`; a carry into the next exponent comes out right.
        let byte = count + ((exponent - least) << self.fraction);
        if byte > u32::from(self.greatest) {
            return self.overflow(sign);
        }
        if self.fnuz && byte == 0 { 0 } else { sign | byte as u8 }
    }

    fn overflow(&self, sign: u8) -> u8 {
        if self.fnuz { self.beyond } else { sign | self.beyond }
    }
}

fn decode_e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(0x0040_0000), // 2^-127
        0xff => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// Powers of two only: the exponent of `x`, rounded to nearest with ties to even. The sign is lost.
fn encode_e8m0(x: f32) -> u8 {
    let bits = x.to_bits();
    let exponent = bits >> 23 & 0xff;
    if exponent == 0xff {
        return 0xff;
    }
    let guard = bits & 0x0040_0000 != 0;
    let rest = bits & 0x003f_ffff != 0;
    let up = guard && (exponent > 0 || rest);
    exponent as u8 + u8::from(up)
}

macro_rules! fp8 {
    ($name:ident, $doc:literal, $decode:expr, $encode:expr) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) u8);

        impl Elem for $name {
            type Wide = f32;

            #[inline(always)]
            fn widen(self) -> f32 {
                $decode(self.0)
            }
            #[inline(always)]
            fn narrow(w: f32) -> Self {
                $name($encode(w))
            }
            #[inline(always)]
            fn round(w: f32) -> f32 {
                $decode($encode(w))
            }
            #[inline(always)]
            fn add(left: f32, right: f32) -> f32 {
                left + right
            }
            #[inline(always)]
            fn quick_add(left: f32, right: f32) -> f32 {
                left + right
            }
            #[inline(always)]
            fn mul(left: f32, right: f32) -> f32 {
                left * right
            }
            #[inline(always)]
            fn div_count(w: f32, count: usize) -> f32 {
                w / count as f32
            }
            #[inline(always)]
            fn from_count(count: usize) -> f32 {
                count as f32
            }
            #[inline(always)]
            fn from_f64(x: f64) -> f32 {
                x as f32
            }
            #[inline(always)]
            fn less(left: Self, right: Self) -> bool {
                left.widen() < right.widen()
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.widen().is_nan()
            }
        }
    };
}

static E4M3FN_TABLE: [f32; 256] = E4M3FN.table();
static E4M3FNUZ_TABLE: [f32; 256] = E4M3FNUZ.table();
static E5M2_TABLE: [f32; 256] = E5M2.table();
static E5M2FNUZ_TABLE: [f32; 256] = E5M2FNUZ.table();

fp8!(F8E4M3FN, "e4m3fn", |b: u8| E4M3FN_TABLE[usize::from(b)], |x| E4M3FN.encode(x));
fp8!(F8E4M3FNUZ, "e4m3fnuz", |b: u8| E4M3FNUZ_TABLE[usize::from(b)], |x| E4M3FNUZ.encode(x));
fp8!(F8E5M2, "e5m2", |b: u8| E5M2_TABLE[usize::from(b)], |x| E5M2.encode(x));
fp8!(F8E5M2FNUZ, "e5m2fnuz", |b: u8| E5M2FNUZ_TABLE[usize::from(b)], |x| E5M2FNUZ.encode(x));
fp8!(F8E8M0FNU, "e8m0fnu", decode_e8m0, encode_e8m0);

#[cfg(test)]
mod tests {
    use super::*;

    const TORCH: &str = include_str!("../data/fp8.tsv");

    fn decode(name: &str, byte: u8) -> f32 {
        match name {
            "float8_e4m3fn" => F8E4M3FN(byte).widen(),
            "float8_e4m3fnuz" => F8E4M3FNUZ(byte).widen(),
            "float8_e5m2" => F8E5M2(byte).widen(),
            "float8_e5m2fnuz" => F8E5M2FNUZ(byte).widen(),
            _ => F8E8M0FNU(byte).widen(),
        }
    }

    fn encode(name: &str, x: f32) -> u8 {
        match name {
            "float8_e4m3fn" => F8E4M3FN::narrow(x).0,
            "float8_e4m3fnuz" => F8E4M3FNUZ::narrow(x).0,
            "float8_e5m2" => F8E5M2::narrow(x).0,
            "float8_e5m2fnuz" => F8E5M2FNUZ::narrow(x).0,
            _ => F8E8M0FNU::narrow(x).0,
        }
    }

    #[test]
    fn converts_as_torch_does() {
        let hex = |text: &str| u32::from_str_radix(text, 16).expect("a hexadecimal number");
        let mut rows = 0;
        for line in TORCH.lines().skip(1) {
            let [what, name, cells] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("malformed row") };
            for (byte, cell) in (0u8..=255).zip(cells.split(' ')).filter(|_| what == "decode") {
                let (ours, theirs) = (decode(name, byte), f32::from_bits(hex(cell)));
                assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{name} {byte:#x}");
            }
            for cell in cells.split(' ').filter(|_| what == "encode") {
                let (bits, byte) = cell.split_once(':').expect("float:byte");
                assert_eq!(u32::from(encode(name, f32::from_bits(hex(bits)))), hex(byte), "{name} {bits}");
            }
            rows += 1;
        }
        assert_eq!(rows, 10);
    }
}
