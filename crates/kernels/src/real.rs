//! The two element types with fast CPU paths, and their transcendental functions.
//!
//! f32 uses branch-free polynomials that the compiler turns into SIMD code; f64, which serves as an oracle,
//! uses the standard library. The polynomials ask for fused multiply-adds: exactly defined, so that every CPU
//! gives the same bits, but a slow library call on x86-64 without FMA (before 2013).

use crate::storage::Element;

/// f32 or f64.
pub(crate) trait Real:
    Element
    + std::ops::Neg<Output = Self>
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + Default
    + Send
    + Sync
{
    /// 0, 1 and 2.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// 2.
    const TWO: Self;

    /// Rounds to this type.
    fn of_f64(x: f64) -> Self;
    /// Widens to f64.
    fn wide(self) -> f64;
    /// √x.
    fn root(self) -> Self;
    /// eˣ; NaN stays NaN.
    fn exponential(self) -> Self;
    /// tanh x; NaN stays NaN.
    fn hyperbolic_tangent(self) -> Self;

    /// 1 / (1 + e⁻ˣ).
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exponential())
    }

    /// The larger of both; the first when either is NaN, so a running maximum started at −∞ skips NaN.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const TWO: f64 = 2.0;

    #[inline(always)]
    fn of_f64(x: f64) -> f64 {
        x
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }

    #[inline(always)]
    fn exponential(self) -> f64 {
        self.exp()
    }

    #[inline(always)]
    fn hyperbolic_tangent(self) -> f64 {
        self.tanh()
    }
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const TWO: f32 = 2.0;

    #[inline(always)]
    fn of_f64(x: f64) -> f32 {
        x as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self as f64
    }

    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }

    #[inline(always)]
    fn exponential(self) -> f32 {
        exp_f32(self)
    }

    #[inline(always)]
    fn hyperbolic_tangent(self) -> f32 {
        tanh_f32(self)
    }
}

/// Horner's rule, the highest power's coefficient first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut p = coefficients[0];
    for c in &coefficients[1..] {
        p = p.mul_add(x, *c);
    }
    p
}

/// eˣ within 2 ulp on −87.3 ≤ x ≤ 88.3; below, the smallest normal number (about 1e-38); above, e^88.3.
///
/// eˣ = 2ⁿ·eʳ with n = round(x·log₂e) and |r| ≤ ln2/2; eʳ by the degree-6 polynomial of Cephes' `expf`.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    // 1.5·2²³: adding it leaves the nearest integer in the low bits of the mantissa
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has so few bits that n·LN2_HIGH is exact
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LEAST: f32 = -87.3;
    const MOST: f32 = 88.3;
    // comparisons, not min/max: those would turn NaN into a number
    let x = if x < LEAST { LEAST } else { x };
    let x = if x > MOST { MOST } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let p = polynomial(r, [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
    let e = p.mul_add(r * r, r + 1.0);
    // n + 127 is between 1 and 254: the exponent bits of 2ⁿ
    e * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

/// tanh x within 4e-7 relative, for every x.
///
/// A rational function x·P(x²)/Q(x²) on |x| ≤ 7.905, beyond which tanh is 1 to 3e-7 (coefficients as in Eigen's `ptanh`).
#[inline(always)]
fn tanh_f32(x: f32) -> f32 {
    const BOUND: f32 = 7.905_311;
    let x = if x < -BOUND { -BOUND } else { x };
    let x = if x > BOUND { BOUND } else { x };
    let s = x * x;
    let p = polynomial(
        s,
        [
            -2.760_768_4e-16,
            2.000_188e-13,
            -8.604_672e-11,
            5.122_297e-8,
            1.485_722_4e-5,
            6.372_619e-4,
            4.893_524_6e-3,
        ],
    );
    let q = polynomial(s, [1.198_258_4e-6, 1.185_347e-4, 2.268_434_6e-3, 4.893_525e-3]);
    x * p / q
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest relative error of `f` against `oracle` (f64, standard library) over [low, high].
    fn worst(low: f64, high: f64, f: fn(f32) -> f32, oracle: fn(f64) -> f64) -> f64 {
        let steps = 400_000;
        let points = (0..=steps).map(|i| (low + (high - low) * i as f64 / steps as f64) as f32);
        let error = |x: f32| {
            let right = oracle(x as f64);
            if right == 0.0 { f(x).abs() as f64 } else { ((f(x) as f64 - right) / right).abs() }
        };
        points.map(error).fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_within_two_ulp_of_the_standard_library_in_f64() {
        let e = worst(-87.0, 88.0, exp_f32, f64::exp);
        assert!(e < 2.4e-7, "relative error {e:e}");
        assert_eq!(exp_f32(0.0), 1.0);
    }

    #[test]
    fn tanh_is_within_4e_7_of_the_standard_library_in_f64() {
        for (low, high) in [(-12.0, 12.0), (-0.5, 0.5), (-1e-3, 1e-3), (7.0, 100.0)] {
            let e = worst(low, high, tanh_f32, f64::tanh);
            assert!(e < 4e-7, "relative error {e:e} on [{low}, {high}]");
        }
    }

    #[test]
    fn nan_and_infinity_are_not_swallowed() {
        assert!(exp_f32(f32::NAN).is_nan() && tanh_f32(f32::NAN).is_nan());
        assert!(exp_f32(f32::NEG_INFINITY) < 2e-38);
        assert!((tanh_f32(f32::INFINITY) - 1.0).abs() < 4e-7);
        assert!((tanh_f32(f32::NEG_INFINITY) + 1.0).abs() < 4e-7);
    }
}
