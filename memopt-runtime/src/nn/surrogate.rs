//! The step function that fires, and what stands for its derivative in backward.

use super::element::Real;

/// The surrogate gradient of the step function `s = 1 if x >= 0 else 0`, `x = h - threshold`.
///
/// Forward is always the step. Backward is `ds/dx = g'(x)`, the derivative of a smooth (or at least continuous) primitive
/// `g` that goes from 0 to 1; the variant holds its scale alpha > 0, which is the steepness in `x`:
///
/// | surrogate | `g'(x)` | `g(x)` | default alpha |
/// |---|---|---|---|
/// | `ATan` | `alpha / (2 (1 + (pi alpha x / 2)^2))` | `atan(pi alpha x / 2) / pi + 1/2` | 2 |
/// | `Sigmoid` | `alpha s (1 - s)`, `s = sigmoid(alpha x)` | `sigmoid(alpha x)` | 4 |
/// | `PiecewiseQuadratic` | `max(0, alpha - alpha^2 abs(x))` | its integral | 1 |
/// | `Rectangular` | `alpha` if `abs(x) < 1 / (2 alpha)`, else 0 | `clamp(alpha x + 1/2, 0, 1)` | 1 |
/// | `FastSigmoid` | `alpha / (2 (1 + alpha abs(x))^2)` | `(alpha x / (1 + alpha abs(x)) + 1) / 2` | 2 |
///
/// Formulas and defaults are those of SpikingJelly's `ATan`, `Sigmoid`, `PiecewiseQuadratic`, `Rect` and `SoftSign`.
/// `FastSigmoid` is Zenke and Ganguli's (SuperSpike, 2018) with its primitive scaled to go from 0 to 1: snnTorch's
/// `fast_sigmoid(slope)` is `2 / slope` times ours with `alpha = slope`.
///
/// ```
/// use memopt_runtime::nn::Surrogate;
/// assert_eq!(Surrogate::atan().derivative(0.), 1.);
/// assert_eq!(Surrogate::Rectangular(2.).derivative(0.3), 0.);
/// assert_eq!(Surrogate::Sigmoid(4.).primitive(0.), 0.5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Surrogate {
    /// Derivative of the arc tangent.
    ATan(f64),
    /// Derivative of the logistic function.
    Sigmoid(f64),
    /// A triangle.
    PiecewiseQuadratic(f64),
    /// A window.
    Rectangular(f64),
    /// Derivative of the softsign, which has long tails and needs no exponential.
    FastSigmoid(f64),
}

impl Default for Surrogate {
    /// [`Surrogate::sigmoid`], SpikingJelly's default for its neurons.
    fn default() -> Self {
        Self::sigmoid()
    }
}

impl Surrogate {
    /// `ATan` with alpha 2.
    pub const fn atan() -> Self {
        Surrogate::ATan(2.)
    }

    /// `Sigmoid` with alpha 4.
    pub const fn sigmoid() -> Self {
        Surrogate::Sigmoid(4.)
    }

    /// `PiecewiseQuadratic` with alpha 1.
    pub const fn piecewise_quadratic() -> Self {
        Surrogate::PiecewiseQuadratic(1.)
    }

    /// `Rectangular` with alpha 1.
    pub const fn rectangular() -> Self {
        Surrogate::Rectangular(1.)
    }

    /// `FastSigmoid` with alpha 2.
    pub const fn fast_sigmoid() -> Self {
        Surrogate::FastSigmoid(2.)
    }

    /// Its scale.
    pub fn alpha(&self) -> f64 {
        match *self {
            Surrogate::ATan(alpha)
            | Surrogate::Sigmoid(alpha)
            | Surrogate::PiecewiseQuadratic(alpha)
            | Surrogate::Rectangular(alpha)
            | Surrogate::FastSigmoid(alpha) => alpha,
        }
    }

    /// `g'(x)`.
    pub fn derivative(&self, x: f64) -> f64 {
        let mut value = [x];
        self.derivatives(&mut value);
        value[0]
    }

    /// `g(x)`.
    pub fn primitive(&self, x: f64) -> f64 {
        match *self {
            Surrogate::ATan(a) => (std::f64::consts::FRAC_PI_2 * a * x).atan() / std::f64::consts::PI + 0.5,
            Surrogate::Sigmoid(a) => 1. / (1. + (-a * x).exp()),
            Surrogate::PiecewiseQuadratic(a) => {
                let x = x.clamp(-1. / a, 1. / a);
                a * x - 0.5 * a * a * x.abs() * x + 0.5
            }
            Surrogate::Rectangular(a) => (a * x + 0.5).clamp(0., 1.),
            Surrogate::FastSigmoid(a) => 0.5 * (a * x / (1. + a * x.abs()) + 1.),
        }
    }

    /// Each `x` becomes `g'(x)`.
    #[inline(always)]
    pub(super) fn derivatives<R: Real>(&self, x: &mut [R]) {
        let (one, two, zero) = (R::ONE, R::from_f64(2.), R::ZERO);
        let a = R::from_f64(self.alpha());
        match self {
            Surrogate::ATan(alpha) => {
                let (half, scale) =
                    (R::from_f64(alpha / 2.), R::from_f64(std::f64::consts::FRAC_PI_2 * alpha));
                each(x, |x| {
                    let u = scale * x;
                    half / (one + u * u)
                });
            }
            // With e = exp(-|alpha x|), s (1 - s) = e / (1 + e)^2: unlike 1 - s, exact far from the threshold too.
            Surrogate::Sigmoid(_) => each(x, |x| {
                let e = (-(a * x).abs()).exp_of_nonpositive();
                a * e / ((one + e) * (one + e))
            }),
            Surrogate::PiecewiseQuadratic(_) => each(x, |x| {
                let y = a - a * a * x.abs();
                if y > zero {
                    y
                } else {
                    zero
                }
            }),
            Surrogate::Rectangular(alpha) => {
                let width = R::from_f64(0.5 / alpha);
                each(x, |x| if x.abs() < width { a } else { zero });
            }
            Surrogate::FastSigmoid(_) => each(x, |x| {
                let u = one + a * x.abs();
                a / (two * u * u)
            }),
        }
    }
}

#[inline(always)]
fn each<R: Copy>(values: &mut [R], f: impl Fn(R) -> R) {
    for value in values {
        *value = f(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(alpha: f64) -> [Surrogate; 5] {
        [
            Surrogate::ATan(alpha),
            Surrogate::Sigmoid(alpha),
            Surrogate::PiecewiseQuadratic(alpha),
            Surrogate::Rectangular(alpha),
            Surrogate::FastSigmoid(alpha),
        ]
    }

    #[test]
    fn the_gradient_is_the_derivative_of_the_primitive() {
        for surrogate in [0.7, 2., 4.].into_iter().flat_map(all) {
            for i in -40..=40 {
                // Off the kinks at 0, 1 / alpha and 1 / (2 alpha).
                let (x, d) = (i as f64 * 0.1 + 0.013, 1e-6);
                let numeric = (surrogate.primitive(x + d) - surrogate.primitive(x - d)) / (2. * d);
                let ours = surrogate.derivative(x);
                assert!((ours - numeric).abs() < 1e-6, "{surrogate:?} at {x}: {ours} {numeric}");
            }
        }
    }

    #[test]
    fn the_primitive_goes_from_0_to_1() {
        for surrogate in all(3.) {
            assert_eq!(surrogate.primitive(0.), 0.5);
            assert!(surrogate.primitive(-1e9) < 1e-8 && surrogate.primitive(1e9) > 1. - 1e-8);
        }
    }

    #[test]
    fn gradients_far_from_the_threshold_do_not_cancel_or_overflow() {
        for surrogate in all(4.) {
            for x in [-1e30, -50., 50., 1e30] {
                let mut value = [x as f32];
                surrogate.derivatives(&mut value);
                assert!(value[0].is_finite() && value[0] >= 0., "{surrogate:?} at {x}");
            }
        }
        let mut tail = [5f32];
        Surrogate::sigmoid().derivatives(&mut tail);
        assert!((f64::from(tail[0]) / (4. * (-20f64).exp()) - 1.).abs() < 1e-5);
    }
}
