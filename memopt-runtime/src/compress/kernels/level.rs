//! Which vector instructions the kernels use.

use std::sync::OnceLock;

/// A set of vector instructions, from the least to the most capable.
///
/// Every kernel takes one. Asking for a level that the machine lacks gives the best one that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimdLevel {
    /// What the target guarantees: no detection at run time.
    Portable,
    /// x86-64 with AVX2, BMI1, BMI2 and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and DQ, and all of [`SimdLevel::Avx2`].
    Avx512,
}

impl SimdLevel {
    const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The best level of this machine; detected once.
    pub fn detected() -> Self {
        static DETECTED: OnceLock<SimdLevel> = OnceLock::new();
        *DETECTED.get_or_init(detect)
    }

    /// All levels that this machine can run, [`SimdLevel::Portable`] first.
    pub fn available() -> &'static [Self] {
        let count = match Self::detected() {
            Self::Portable => 1,
            Self::Avx2 => 2,
            Self::Avx512 => 3,
        };
        &Self::ALL[..count]
    }

    /// This level, or the best one of this machine if it lacks this one. Every dispatch to a vector unit relies on it.
    pub(crate) fn clamped(self) -> Self {
        self.min(Self::detected())
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> SimdLevel {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, avx512) {
        (true, true) => SimdLevel::Avx512,
        (true, false) => SimdLevel::Avx2,
        (false, _) => SimdLevel::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> SimdLevel {
    SimdLevel::Portable
}
