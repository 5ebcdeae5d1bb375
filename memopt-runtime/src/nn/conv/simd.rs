//! Loops compiled for each level of vector instructions.
#![allow(unsafe_code)]

/// Makes of a generic function with plain loops one that takes a [`SimdLevel`](crate::compress::kernels::SimdLevel)
/// first: the same loops, compiled for each level and vectorized by the compiler. The loops must be `#[inline(always)]`
/// and do no more than elementwise arithmetic, which is the same bits under every level: Rust fuses no multiplication
/// with an addition.
macro_rules! for_each_level {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) = $loops:path) => {
        $(#[$doc])*
        #[allow(unsafe_code)]
        $vis fn $name<R: $crate::nn::element::Real>(
            level: $crate::compress::kernels::SimdLevel,
            $($argument: $type),*
        ) {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::compress::kernels::SimdLevel;

                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
                fn avx512<R: $crate::nn::element::Real>($($argument: $type),*) {
                    $loops($($argument),*)
                }
                #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
                fn avx2<R: $crate::nn::element::Real>($($argument: $type),*) {
                    $loops($($argument),*)
                }
                match level.clamped() {
                    // SAFETY: the level is clamped to what the machine has.
                    SimdLevel::Avx512 => return unsafe { avx512($($argument),*) },
                    // SAFETY: the level is clamped to what the machine has.
                    SimdLevel::Avx2 => return unsafe { avx2($($argument),*) },
                    SimdLevel::Portable => {}
                }
            }
            let _ = level;
            $loops($($argument),*)
        }
    };
}
pub(super) use for_each_level;
