//! Other floats than f32.

use super::nets::Setup;
use super::support::alive;
use candle_core::DType;
use memopt::plan::Keep;

#[test]
fn every_float_dtype_gives_the_same_bits() {
    for dtype in [DType::BF16, DType::F16, DType::F64] {
        let setup = Setup { dtype, ..Setup::default() };
        let mut plans = vec![setup.plan(Keep::Recompute), setup.split()];
        plans.extend([2, 3].map(|chunks| setup.plan(Keep::TimeChunks(chunks))));
        assert!(alive(&setup.check(plans, false)) > 40, "{dtype:?}");
        let wide = Setup { dtype, ..Setup::wide() };
        wide.check([2, 3].map(|chunks| wide.plan(Keep::ChannelChunks(chunks))), true);
    }
}
