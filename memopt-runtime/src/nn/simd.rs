//! Plain loops, compiled for each level of vector instructions and vectorized by the compiler.
#![allow(unsafe_code)]

use crate::compress::kernels::SimdLevel;

/// Loops that [`run`] compiles once for each level.
///
/// They do elementwise arithmetic, and sums in lanes that the code spells out: those are the same bits under every level,
/// since Rust neither fuses a multiplication with an addition nor reorders additions.
pub(crate) trait Loops {
    type Output;

    /// `#[inline(always)]`, like all that it calls: what is not inlined is compiled for the least level.
    fn run(self) -> Self::Output;
}

/// Runs loops with the instructions of a level, or of the machine's best one if it lacks this one.
#[inline]
pub(crate) fn run<L: Loops>(level: SimdLevel, loops: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        SimdLevel::Avx512 => return unsafe { avx512(loops) },
        // SAFETY: the level is clamped to what the machine has.
        SimdLevel::Avx2 => return unsafe { avx2(loops) },
        SimdLevel::Portable => {}
    }
    let _ = level;
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
fn avx512<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn avx2<L: Loops>(loops: L) -> L::Output {
    loops.run()
}
