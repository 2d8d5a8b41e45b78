//! Functions of real numbers that `core` lacks, in plain arithmetic.
//!
//! They give the same bits on every machine, which the math libraries of platforms do not promise. They are exact to
//! about twelve digits, which is enough for every decision of a policy.

/// Returns the largest whole number not above `x`.
pub(crate) fn floor(x: f64) -> f64 {
    // From 2^52 on every f64 is whole.
    if x.is_nan() || x.abs() >= 4_503_599_627_370_496.0 {
        return x;
    }
    let whole = x as i64 as f64;
    if whole > x { whole - 1.0 } else { whole }
}

/// Returns the smallest whole number not below `x`.
pub(crate) fn ceil(x: f64) -> f64 {
    -floor(-x)
}

/// Returns the nearest whole number; halves round up.
pub(crate) fn round(x: f64) -> f64 {
    floor(x + 0.5)
}

/// Returns the natural logarithm, or the smallest f64 unless `x` is positive.
pub(crate) fn ln(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return f64::MIN;
    }
    if x.is_infinite() {
        return f64::MAX;
    }
    // x = m * 2^e with m near 1; subnormals are scaled up first.
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * 18_014_398_509_481_984.0, 54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023 - shift;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), and |argument| < 0.172.
    let u = (mantissa - 1.0) / (mantissa + 1.0);
    let square = u * u;
    let (mut power, mut sum) = (u, 0.0);
    for odd in (1..24).step_by(2) {
        sum += power / f64::from(odd);
        power *= square;
    }
    2.0 * sum + exponent as f64 * core::f64::consts::LN_2
}

/// Returns the exponential function; 0 below -700, and the largest f64 above 700.
pub(crate) fn exp(x: f64) -> f64 {
    if x.is_nan() || x < -700.0 {
        return 0.0;
    }
    if x > 700.0 {
        return f64::MAX;
    }
    let doublings = round(x / core::f64::consts::LN_2);
    let rest = x - doublings * core::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..16 {
        term *= rest / f64::from(n);
        sum += term;
    }
    sum * f64::from_bits(((1023 + doublings as i64) as u64) << 52)
}

/// Returns `base` to the power `exponent`, for a positive base.
pub(crate) fn power(base: f64, exponent: f64) -> f64 {
    if exponent == 0.0 { 1.0 } else { exp(exponent * ln(base)) }
}

/// Returns the weight left after `elapsed`: 2^(-elapsed / half_life).
pub(crate) fn decay(elapsed: f64, half_life: f64) -> f64 {
    exp(-core::f64::consts::LN_2 * (elapsed / half_life).max(0.0))
}

/// Returns the square root, or 0 for negative numbers.
pub(crate) fn square_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = exp(ln(x) / 2.0);
    for _ in 0..2 {
        root = (root + x / root) / 2.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_the_library() {
        for x in [1e-300, 1e-9, 0.3, 0.999, 1.0, 1.4143, 2.0, 10.0, 12345.678, 1e17, 1e300] {
            assert!((ln(x) - x.ln()).abs() <= 1e-12 * x.ln().abs().max(1.0), "ln {x}");
        }
        for x in [-650.0, -20.0, -0.7, 0.0, 0.1, 1.0, 5.5, 80.0, 650.0] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "exp {x}");
        }
        for x in [-3.5, -3.0, -0.2, 0.0, 0.5, 2.999, 1e15, 1e300] {
            assert_eq!((floor(x), ceil(x)), (x.floor(), x.ceil()), "{x}");
        }
        assert!((power(1.7, 3.25) - 1.7f64.powf(3.25)).abs() < 1e-11);
        assert!((decay(16.0, 8.0) - 0.25).abs() < 1e-14);
        assert_eq!((decay(0.0, 8.0), decay(-1.0, 8.0)), (1.0, 1.0));
        assert!(ln(0.0) < -1e300 && ln(f64::NAN) < -1e300 && exp(f64::NAN) == 0.0);
    }
}
