//! Errors and panics inside of planned segments: typed, with the segment's path, and without consequences.

use super::nets::{Block, Kind};
use super::support::*;
use candle_core::{DType, Tensor};
use candle_nn::VarBuilder;
use memopt::autograd::{apply, Edge, Output};
use memopt::checkpoint::{is_inside_segment, mark_changed};
use memopt::module::{Context, Part, Session, Signal};
use memopt::nn::Dropout;
use memopt::parameters::Visitor;
use memopt::{Checkpointable, Error, Parameters, Phase, Result};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Which pass of a layer fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    Forward,
    Backward,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Error,
    Panic,
    /// It gives something else than before.
    OtherValues,
}

/// Does nothing, and once fails, when it is told to.
#[derive(Clone, Default)]
struct Fuse(Arc<Mutex<Option<(When, How)>>>);

impl Fuse {
    fn arm(&self, when: When, how: How) {
        *self.0.lock().unwrap() = Some((when, how));
    }

    /// How it fails now.
    fn blows(&self, when: When) -> Option<How> {
        self.0.lock().unwrap().take_if(|(armed, _)| *armed == when).map(|(_, how)| how)
    }

    /// Whether it gives other values.
    fn run(&self, when: When) -> Result<bool> {
        match self.blows(when) {
            None => Ok(false),
            Some(How::OtherValues) => Ok(true),
            Some(How::Panic) => panic!("blown"),
            Some(How::Error) => Err(candle_core::Error::Msg("blown".into()).into()),
        }
    }
}

impl Parameters for Fuse {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        self.clone()
    }
}

impl Checkpointable for Fuse {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let mut x = x.into_dense(context.path())?;
        if self.run(When::Forward)? {
            x = x.affine(-1., 1.)?;
        }
        let (fuse, output) = (self.clone(), Output::copy_of(&x.detach())?);
        let back = move |gradients| fuse.run(When::Backward).map(|_| gradients);
        Ok(apply("fuse", vec![Edge::to(&x)], vec![output], back)?.remove(0).into())
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }

    fn for_channels(&self, _: Range<usize>) -> Result<Option<Part>> {
        Ok(Some(Part::of(self)))
    }
}

#[derive(Clone, Checkpointable)]
#[spatial_split(block, fuse)]
struct Failing {
    block: Block,
    fuse: Fuse,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(before, failing, after, dropout)]
struct Net {
    before: Block,
    failing: Failing,
    after: Block,
    dropout: Dropout,
}

fn net(vb: VarBuilder) -> Result<Net> {
    let block = |name: &str| Block::new(2, 2, Kind::Lif, 0, vb.pp(name));
    let failing = Failing { block: block("failing")?, fuse: Fuse::default() };
    Ok(Net { before: block("before")?, failing, after: block("after")?, dropout: Dropout::new(0.3)? })
}

/// A trained model and what it is trained on.
struct Run {
    trainer: Trainer<Net>,
    windows: Vec<Tensor>,
}

impl Run {
    /// After a first step.
    fn new(plan: &str) -> Self {
        let trainer = Trainer::new(net, DType::F32, plan.parse().unwrap(), session(true)).unwrap();
        let windows = Data::new(4, &[4, 2, 2, 4, 4], DType::F32, 5).windows;
        trainer.step(&windows[0]).unwrap();
        Run { trainer, windows }
    }

    fn fuse(&self) -> &Fuse {
        &self.trainer.net.failing.fuse
    }

    fn session(&self) -> &Session {
        self.trainer.net.session()
    }

    /// The second step fails, the first time that the layer runs after `forward`s.
    fn fail(&self, is_forward: bool, when: When, how: How) -> Error {
        let owners = Arc::strong_count(&self.fuse().0);
        if is_forward {
            self.fuse().arm(when, how);
        }
        let failed = self.trainer.loss(&self.windows[1]).and_then(|loss| {
            self.fuse().arm(when, how);
            Ok(loss.backward().map(|_| ())?)
        });
        assert!(!is_inside_segment());
        assert_eq!(Arc::strong_count(&self.fuse().0), owners, "a segment is still kept");
        failed.unwrap_err()
    }

    /// The third step and the fourth, and where they end.
    fn go_on(&self) -> Record {
        let steps = self.windows[2..].iter().flat_map(|x| self.trainer.step(x).unwrap());
        steps.collect::<Record>().into_iter().chain(self.trainer.variables()).collect()
    }
}

/// Plans, and the path of the outermost segment that fails.
const PLANS: [(&str, &str); 6] = [
    ("failing: gc", "failing"),
    ("failing: tcgc:2", "failing"),
    ("failing: ccgc:2", "failing"),
    ("failing.block..fuse: gc", "failing.block..fuse"),
    ("failing..after: gc\nfailing.fuse: gc", "failing..after"),
    // With a norm in each of its two pieces.
    ("before: gc\nfailing..after: tcgc:3", "failing..after[0]"),
];

/// The path and the pass of the outermost segment in an error.
fn place(error: &Error) -> (&str, Option<Phase>) {
    match error {
        Error::Segment { segment, phase, .. } => (segment, Some(*phase)),
        Error::Panicked { function, phase, .. } => (function, Some(*phase)),
        Error::RecomputeDiffers { segment, .. } => (segment, None),
        other => panic!("no segment: {other}"),
    }
}

#[test]
fn a_backward_that_fails_in_a_segment_names_it_and_the_next_step_is_as_if_nothing_had_been() {
    for (plan, path) in PLANS {
        let expected = {
            let run = Run::new(plan);
            drop(run.trainer.loss(&run.windows[1]).unwrap());
            run.go_on()
        };
        for (when, how) in [
            (When::Forward, How::Error),
            (When::Forward, How::Panic),
            (When::Forward, How::OtherValues),
            (When::Backward, How::Error),
            (When::Backward, How::Panic),
        ] {
            if how == How::OtherValues && !cfg!(debug_assertions) {
                continue; // not verified
            }
            let what = format!("{how:?} in {when:?}, under\n{plan}");
            let run = Run::new(plan);
            let error = run.fail(false, when, how);
            assert_eq!(place(&error).0, path, "{error}, {what}");
            let fits = match (error.root(), how) {
                (Error::RecomputeDiffers { .. }, How::OtherValues) => true,
                (Error::Panicked { message, .. }, How::Panic) => message == "blown",
                (Error::Candle(error), How::Error) => error.to_string() == "blown",
                _ => false,
            };
            assert!(fits, "{error}, {what}");
            assert_same_bits(&run.go_on(), &expected, what);
        }
    }
}

fn check_passes(plan: &str) {
    for how in [How::Error, How::Panic] {
        let pass = |is_forward, when| {
            let error = Run::new(plan).fail(is_forward, when, how);
            place(&error).1.unwrap()
        };
        assert_eq!(pass(true, When::Forward), Phase::Forward, "{how:?}, under\n{plan}");
        assert_eq!(pass(false, When::Forward), Phase::Recompute, "{how:?}, under\n{plan}");
        assert_eq!(pass(false, When::Backward), Phase::Backward, "{how:?}, under\n{plan}");
    }
}

#[test]
fn an_error_says_in_which_pass_it_happened() {
    PLANS.iter().filter(|(plan, _)| !plan.contains("ccgc")).for_each(|(plan, _)| check_passes(plan));
}

#[test]
fn an_error_in_channel_chunks_says_in_which_pass_it_happened() {
    check_passes("failing: ccgc:2");
}

#[test]
fn a_forward_that_fails_in_a_segment_names_it_and_the_next_step_works() {
    for (plan, path) in PLANS {
        for how in [How::Error, How::Panic] {
            let run = Run::new(plan);
            let error = run.fail(true, When::Forward, how);
            assert_eq!(place(&error).0, path, "{error}, {how:?}, under\n{plan}");
            run.go_on();
        }
    }
}

#[test]
fn a_forward_that_fails_moves_nothing() {
    let without = PLANS.map(|(plan, _)| (plan, vec![How::Error, How::Panic]));
    for (plan, ways) in without.into_iter().chain([("", vec![How::Error])]) {
        let expected = Run::new(plan).go_on();
        for how in ways {
            let run = Run::new(plan);
            let before = (run.trainer.variables(), run.session().calls());
            run.fail(true, When::Forward, how);
            let what = format!("{how:?}, under\n{plan}");
            assert_same_bits(&run.trainer.variables(), &before.0, &what);
            assert_eq!(run.session().calls(), before.1, "{what}");
            assert_same_bits(&run.go_on(), &expected, what);
        }
    }
}

#[test]
fn a_second_backward_is_refused_and_the_next_step_is_as_if_nothing_had_been() {
    for (plan, _) in PLANS {
        let run = |again: bool| {
            let run = Run::new(plan);
            let loss = run.trainer.loss(&run.windows[1]).unwrap();
            loss.backward().unwrap();
            if again {
                let error = Error::from(loss.backward().unwrap_err());
                assert!(matches!(error.root(), Error::SecondBackward { .. }), "{error}, under\n{plan}");
            }
            run.go_on()
        };
        assert_same_bits(&run(true), &run(false), plan);
    }
}

#[test]
fn weights_that_change_between_forward_and_backward_are_found() {
    for (plan, path) in PLANS {
        let run = Run::new(plan);
        let loss = run.trainer.loss(&run.windows[1]).unwrap();
        let weight = &run.trainer.named.iter().find(|(name, _)| name == "failing.proj.bn.weight").unwrap().1;
        weight.set(&weight.affine(2., 0.).unwrap().detach()).unwrap();
        mark_changed(weight);
        let error = Error::from(loss.backward().unwrap_err());
        assert!(
            matches!(error.root(), Error::WeightsChanged { segment, .. } if segment == path),
            "{error}, under\n{plan}"
        );
    }
}
