//! The exponential function as plain arithmetic, which compilers vectorize and every platform computes to the same bits.

/// `e^x` for `x <= 0`, within 2 units in the last place; 0 where that is below the smallest normal number.
///
/// `x = n ln 2 + r` with an integer n, then a polynomial in r (that of Cephes' `expf`) times `2^n`.
#[inline(always)]
pub(super) fn exp_of_nonpositive(x: f32) -> f32 {
    /// Added to a small number, it leaves that rounded to an integer, in the lowest bits.
    const ROUND: f32 = 12_582_912.; // 1.5 * 2^23
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Rounded up from ln(2^-126).
    const SMALLEST: f32 = -87.336_54;

    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.;
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    let result = p * f32::from_bits(exponent << 23);
    // NaN stays: it is not below.
    if x < SMALLEST {
        0.
    } else {
        result
    }
}

#[cfg(test)]
mod tests {
    use super::exp_of_nonpositive;

    #[test]
    fn two_units_in_the_last_place() {
        for i in 0..=2_000_000u32 {
            let x = -87.336_5 * (i as f32 / 2_000_000.);
            let exact = f64::from(x).exp();
            let unit = exact * 2f64.powi(-23);
            let ours = f64::from(exp_of_nonpositive(x));
            assert!((ours - exact).abs() <= 2. * unit, "{x}: {ours} {exact}");
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!(exp_of_nonpositive(0.), 1.);
        assert_eq!(exp_of_nonpositive(-0.), 1.);
        for x in [-88., -1e30, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp_of_nonpositive(x), 0.);
        }
        assert!(exp_of_nonpositive(f32::NAN).is_nan());
    }
}
