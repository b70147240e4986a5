//! The two 16-bit floats, as c10 computes with them: each operation in f32, then one rounding to nearest even.
//!
//! A NaN comes out of arithmetic as `sign | 0x7e00` (float16) and as `0x7fc0` without its sign (bfloat16). MIN and MAX
//! compare and move, so they keep every bit of a NaN.

use crate::elem::Elem;

/// float16: 1 sign, 5 exponent, 10 fraction bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct F16(pub(crate) u16);

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct BF16(pub(crate) u16);

const F16_NAN: u16 = 0x7e00;
const BF16_NAN: u16 = 0x7fc0;
/// What torch's vector loop makes of a bfloat16 NaN.
const BF16_VECTOR_NAN: u16 = 0xffff;
/// Elements that torch's vector loop takes at once; the rest go one by one (measured, AVX2 and AVX-512).
const VECTOR: usize = 32;

impl F16 {
    /// Rounds to 11 significant bits, the least exponent being -14, by adding and taking away a power of two whose
    /// last bit is worth what the result's last bit is worth. NaN stays NaN.
    #[inline(always)]
    fn round_f32(x: f32) -> f32 {
        const LEAST: u32 = 113 << 23; // 2^-14
        const GREATEST: u32 = 142 << 23; // 2^15
        let bits = x.to_bits();
        let sign = bits & 0x8000_0000;
        let magnitude = f32::from_bits(bits & 0x7fff_ffff);
        let exponent = (bits & 0x7f80_0000).clamp(LEAST, GREATEST);
        let unit = f32::from_bits(exponent + (13 << 23));
        let rounded = (magnitude + unit) - unit;
        // From halfway between the greatest number and the next power of two on, it is infinity.
        let rounded = if magnitude >= 65520.0 { f32::INFINITY } else { rounded };
        f32::from_bits(rounded.to_bits() & 0x7fff_ffff | sign)
    }
}

impl Elem for F16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.0);
        let sign = (bits & 0x8000) << 16;
        let magnitude = bits & 0x7fff;
        // Normal numbers and NaN: move the exponent over by a multiplication, which is exact.
        let normal = f32::from_bits((magnitude << 13) + (0xe0 << 23)) * f32::from_bits(15 << 23);
        // Numbers below 2^-14: count in units of 2^-24.
        let small = f32::from_bits(magnitude | (126 << 23)) - 0.5;
        let value = if magnitude < 0x0400 { small } else { normal };
        f32::from_bits(value.to_bits() | sign)
    }

    #[inline(always)]
    fn narrow(w: f32) -> F16 {
        let bits = w.to_bits();
        let sign = bits >> 16 & 0x8000;
        let magnitude = f32::from_bits(bits & 0x7fff_ffff);
        let normal = (magnitude.to_bits().wrapping_sub(112 << 23)) >> 13;
        // Exact below 2^-14: adding 1/2 puts a count of 2^-24 into the last bits of the fraction.
        let small = (magnitude + 0.5).to_bits() & 0x3ff;
        let value = if magnitude < f32::from_bits(113 << 23) { small } else { normal.min(0x7c00) };
        let value = if w.is_nan() { u32::from(F16_NAN) } else { value };
        F16((sign | value) as u16)
    }

    #[inline(always)]
    fn round(w: f32) -> f32 {
        F16::round_f32(w)
    }

    #[inline(always)]
    fn add(left: f32, right: f32) -> f32 {
        f32::add(left, right)
    }
    #[inline(always)]
    fn quick_add(left: f32, right: f32) -> f32 {
        left + right
    }
    #[inline(always)]
    fn mul(left: f32, right: f32) -> f32 {
        f32::mul(left, right)
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
    fn less(left: F16, right: F16) -> bool {
        left.widen() < right.widen()
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.0 & 0x7fff > 0x7c00
    }

    /// torch's division uses the processor's conversions, which only make a NaN quiet.
    #[inline(always)]
    fn average_alone(self) -> F16 {
        F16(if self.is_nan() { self.0 | 0x0200 } else { self.0 })
    }
}

impl Elem for BF16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(w: f32) -> BF16 {
        BF16((w.to_bits() >> 16) as u16)
    }

    #[inline(always)]
    fn round(w: f32) -> f32 {
        let bits = w.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
        f32::from_bits(if w.is_nan() { u32::from(BF16_NAN) << 16 } else { rounded })
    }

    // A NaN here has only zeros in its lower half (it was widened, or made by the processor), so nothing is carried
    // and it stays one.
    #[inline(always)]
    fn quick_round(w: f32) -> f32 {
        let bits = w.to_bits();
        f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    }

    // The NaN of the result does not depend on the operands, so the plain operation will do.
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
    fn less(left: BF16, right: BF16) -> bool {
        left.widen() < right.widen()
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.0 & 0x7fff > 0x7f80
    }

    fn patch_average(block: &mut [BF16], first: usize, total: usize) {
        let vectors = total - total % VECTOR;
        let within = vectors.saturating_sub(first).min(block.len());
        for x in &mut block[..within] {
            x.0 = if x.is_nan() { BF16_VECTOR_NAN } else { x.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float16_survives_and_equals_the_half_crate() {
        for bits in 0..=u16::MAX {
            let ours = F16(bits).widen();
            let theirs = half::f16::from_bits(bits).to_f32();
            if ours.is_nan() {
                assert!(theirs.is_nan());
                assert_eq!(F16::narrow(ours).0, bits & 0x8000 | F16_NAN);
            } else {
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#06x}");
                assert_eq!(F16::narrow(ours).0, bits);
                assert_eq!(F16::round(ours).to_bits(), ours.to_bits());
            }
        }
    }

    #[test]
    fn rounding_equals_the_half_crate() {
        // Every f32 whose low 12 bits are one of a few patterns around the ties of both types.
        for high in 0..=u32::MAX >> 12 {
            for low in [0x000, 0x001, 0x7ff, 0x800, 0xfff] {
                let x = f32::from_bits(high << 12 | low);
                if x.is_nan() {
                    continue;
                }
                assert_eq!(F16::narrow(F16::round(x)).0, half::f16::from_f32(x).to_bits(), "{:#x}", x.to_bits());
                assert_eq!(BF16::narrow(BF16::round(x)).0, half::bf16::from_f32(x).to_bits(), "{:#x}", x.to_bits());
            }
        }
    }

    #[test]
    fn nan_of_an_average_depends_on_the_place() {
        let mut block = [BF16(0x7fc0); 4];
        BF16::patch_average(&mut block, 30, 40);
        assert_eq!(block.map(|x| x.0), [0xffff, 0xffff, 0x7fc0, 0x7fc0]);
        BF16::patch_average(&mut block, 36, 40);
        assert_eq!(block.map(|x| x.0), [0xffff, 0xffff, 0x7fc0, 0x7fc0]);
    }
}
