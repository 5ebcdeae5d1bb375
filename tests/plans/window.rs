//! Parts that need the whole window.

use super::nets::{Kind, Setup};
use memopt::module::Session;
use memopt::plan::Keep;
use memopt::Error;

#[test]
fn whole_window_parts_refuse_time_chunks() {
    let setup = Setup::of([Kind::Psn]);
    let error = setup.train(setup.plan(Keep::TimeChunks(2)), Session::new(0)).unwrap_err();
    assert!(
        matches!(error.root(), Error::NotTimeChunkable { segment, part } if segment == "pieces.0" && part == "0.neuron"),
        "{error}"
    );
}
