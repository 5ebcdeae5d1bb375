//! What `#[derive(Checkpointable)]` writes, on real tensors: the forward, how it is cut, paths, parameters and the twin.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, ModuleT, Tensor, Var};
use common::{assert_same, Values};
use memopt::module::{Composition, Context, Session, Signal, Step, TimeChunkable};
use memopt::parameters::{parameters, Visitor};
use memopt::prelude::*;
use memopt::Checkpointable;
use memopt::Result;
use std::sync::{Arc, Mutex};

/// `x * w`.
#[derive(Clone)]
struct Scale {
    w: Tensor,
}

impl Parameters for Scale {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("w", &self.w);
    }

    fn detached(&self) -> Self {
        Scale { w: self.w.detached() }
    }
}

impl Checkpointable for Scale {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        Ok(self.of(&x.into_dense(context.path())?).into())
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

impl TimeChunkable for Scale {}

impl Scale {
    fn new(seed: u64) -> Self {
        let values = Values::new(seed).tensor(&[3], DType::F32).unwrap();
        Scale { w: Var::from_tensor(&values).unwrap().into_inner() }
    }

    fn of(&self, x: &Tensor) -> Tensor {
        x.broadcast_mul(&self.w).unwrap()
    }
}

/// `x + 0.3`, and the path at which it runs is written down.
#[derive(Clone, Parameters)]
struct Shift(#[checkpoint(skip)] Arc<Mutex<Vec<String>>>);

impl Checkpointable for Shift {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        self.0.lock().unwrap().push(context.path().to_owned());
        Ok(shifted(&x.into_dense(context.path())?).into())
    }

    fn is_time_chunkable(&self) -> bool {
        false
    }
}

fn shifted(x: &Tensor) -> Tensor {
    x.affine(1., 0.3).unwrap()
}

/// `[T, N, C]`
fn window() -> Tensor {
    Values::new(99).tensor(&[2, 2, 3], DType::F32).unwrap()
}

fn run<M: Checkpointable>(model: &M, x: &Tensor) -> Tensor {
    let mut context = Context::training(&Session::new(1));
    model.forward(x.into(), &mut context).unwrap().into_dense("test").unwrap()
}

/// The steps as they are written in a split; a part with its compressor.
fn written(composition: &Composition) -> String {
    let steps = composition.steps().iter().map(|step| match step {
        Step::Part { name, compressor: None, .. } => name.to_string(),
        Step::Part { name, compressor: Some(compressor), .. } => format!("{name}: {}", compressor.name()),
        Step::Join { op, branches } => {
            let branches: Vec<String> =
                branches.iter().map(|branch| format!("({})", written(branch))).collect();
            format!("join({op:?}; {})", branches.join(", "))
        }
    });
    steps.collect::<Vec<_>>().join(", ")
}

fn split<M: Checkpointable>(model: &M) -> String {
    model.composition().as_ref().map_or_else(|| "whole".to_owned(), written)
}

fn paths<M: Parameters>(model: &M) -> Vec<String> {
    parameters(model).into_iter().map(|(path, _)| path).collect()
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(second, r#type, first)]
struct Chain<M> {
    first: M,
    second: Scale,
    r#type: Shift,
    #[checkpoint(skip)]
    name: &'static str,
}

fn chain(seed: u64) -> Chain<Scale> {
    let (first, second) = (Scale::new(seed), Scale::new(seed + 1));
    Chain { first, second, r#type: Shift(Arc::default()), name: "chain" }
}

impl Chain<Scale> {
    fn of(&self, x: &Tensor) -> Tensor {
        self.first.of(&shifted(&self.second.of(x)))
    }
}

#[test]
fn a_chain_runs_its_fields_in_the_order_of_the_split() {
    let chain = chain(1);
    assert_same(&run(&chain, &window()), &chain.of(&window()));
    assert_eq!(split(&chain), "second, type, first");
    assert_eq!(*chain.r#type.0.lock().unwrap(), ["type"]);
}

#[test]
fn parameters_are_visited_in_the_order_of_declaration() {
    assert_eq!(paths(&chain(1)), ["first.w", "second.w"]);
}

#[test]
fn a_type_marked_as_segment_is_a_target() {
    assert!(chain(1).is_target());
    assert!(!residual(None).is_target());
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(add; (a, shift, b), shortcut), last)]
struct Residual {
    a: Scale,
    shift: Shift,
    b: Scale,
    shortcut: Option<Scale>,
    last: Chain<Scale>,
}

fn residual(shortcut: Option<Scale>) -> Residual {
    Residual { a: Scale::new(1), shift: Shift(Arc::default()), b: Scale::new(2), shortcut, last: chain(3) }
}

#[test]
fn a_residual_block_adds_its_branches() {
    let x = window();
    for shortcut in [None, Some(Scale::new(7))] {
        let model = residual(shortcut);
        let main = model.b.of(&shifted(&model.a.of(&x)));
        let side = model.shortcut.as_ref().map_or_else(|| x.clone(), |shortcut| shortcut.of(&x));
        assert_same(&run(&model, &x), &model.last.of(&(main + side).unwrap()));
        assert_eq!(split(&model), "join(add; (a, shift, b), (shortcut)), last");
        assert_eq!(*model.last.r#type.0.lock().unwrap(), ["last.type"]);
    }
}

#[derive(Clone, Checkpointable)]
#[spatial_split(
    join(mul; a, b),
    join(and; c, (d, join(iand; e, f))),
    join(concat; (join(add; g, h, i)), join(add; j, k), l),
)]
struct Joins {
    a: Scale,
    b: Scale,
    c: Scale,
    d: Scale,
    e: Scale,
    f: Scale,
    g: Scale,
    h: Scale,
    i: Scale,
    j: Scale,
    k: Scale,
    l: Scale,
}

#[test]
fn every_operation_and_nesting_is_what_it_says() {
    let mut seed = 0;
    let mut next = || {
        seed += 1;
        Scale::new(seed)
    };
    let model = Joins {
        a: next(),
        b: next(),
        c: next(),
        d: next(),
        e: next(),
        f: next(),
        g: next(),
        h: next(),
        i: next(),
        j: next(),
        k: next(),
        l: next(),
    };
    let x = window();
    let y = (model.a.of(&x) * model.b.of(&x)).unwrap();
    let d = model.d.of(&y);
    let iand = (model.e.of(&d).affine(-1., 1.).unwrap() * model.f.of(&d)).unwrap();
    let z = (model.c.of(&y) * iand).unwrap();
    let three = ((model.g.of(&z) + model.h.of(&z)).unwrap() + model.i.of(&z)).unwrap();
    let two = (model.j.of(&z) + model.k.of(&z)).unwrap();
    let expected = Tensor::cat(&[three, two, model.l.of(&z)], 2).unwrap();
    assert_same(&run(&model, &x), &expected);
    let steps = "join(mul; (a), (b)), join(and; (c), (d, join(iand; (e), (f)))), \
                 join(concat; (join(add; (g), (h), (i))), (join(add; (j), (k))), (l))";
    assert_eq!(split(&model), steps);
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(self.r#mix; query, (key, shift)), out)]
struct Mixer<M> {
    query: M,
    key: M,
    shift: Shift,
    out: Scale,
    #[checkpoint(skip)]
    rate: f64,
}

impl<M: Checkpointable> Mixer<M> {
    fn mix(&self, branches: &[Signal], context: &mut Context) -> Result<Signal> {
        assert_eq!((branches.len(), context.path()), (2, ""));
        let [query, key] = [0, 1].map(|i| branches[i].clone().into_dense("mix").unwrap());
        Ok(query.affine(self.rate, 0.)?.sub(&key)?.into())
    }
}

fn mixer() -> Mixer<Scale> {
    let shift = Shift(Arc::default());
    Mixer { query: Scale::new(1), key: Scale::new(2), shift, out: Scale::new(3), rate: 0.7 }
}

#[test]
fn a_method_joins_with_the_models_own_fields() {
    let (model, x) = (mixer(), window());
    let query = model.query.of(&x).affine(0.7, 0.).unwrap();
    let expected = model.out.of(&query.sub(&shifted(&model.key.of(&x))).unwrap());
    assert_same(&run(&model, &x), &expected);
    assert_eq!(split(&model), "join(mix; (query), (key, shift)), out");
    let composition = model.composition().unwrap();
    assert!(matches!(&composition.steps()[0], Step::Join { op, .. } if op.name() == "mix"));
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment, forward = "run")]
struct Opaque<M: Checkpointable> {
    weight: Tensor,
    inner: M,
    #[checkpoint(skip)]
    rate: f64,
}

impl<M: Checkpointable> Opaque<M> {
    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let y = context.enter("inner", |context| self.inner.forward(x, context))?.into_dense("opaque")?;
        Ok(y.broadcast_add(&self.weight)?.affine(self.rate, 0.)?.into())
    }
}

fn opaque() -> Opaque<Shift> {
    Opaque { weight: Scale::new(5).w, inner: Shift(Arc::default()), rate: 2. }
}

#[test]
fn a_method_can_be_the_forward() {
    let (model, x) = (opaque(), window());
    let expected = shifted(&x).broadcast_add(&model.weight).unwrap().affine(2., 0.).unwrap();
    assert_same(&run(&model, &x), &expected);
    assert_eq!(split(&model), "whole");
    assert_eq!(paths(&model), ["weight"]);
    assert!(model.is_target());
    assert_eq!(*model.inner.0.lock().unwrap(), ["inner"]);
}

#[derive(Clone, Checkpointable)]
enum Layer {
    Chain(Chain<Scale>),
    Opaque(Opaque<Shift>),
    List(Vec<Layer>),
}

#[derive(Clone, Checkpointable)]
#[spatial_split(2, 0)]
struct Net([Layer; 2], #[checkpoint(skip)] usize, (Box<Layer>, Option<Scale>));

fn net() -> Net {
    let list = vec![Layer::Chain(chain(10)), Layer::Opaque(opaque())];
    Net([Layer::List(list), Layer::Chain(chain(20))], 4, (Box::new(Layer::Opaque(opaque())), None))
}

#[test]
fn enums_lists_arrays_tuples_boxes_and_options_compose() {
    let net = net();
    let opaque = |x: &Tensor| run(&opaque(), x);
    let expected = chain(20).of(&opaque(&chain(10).of(&opaque(&window()))));
    assert_same(&run(&net, &window()), &expected);
    assert_eq!(split(&net), "2, 0");
    assert_eq!(split(&net.0), "0, 1");
    assert_eq!(split(&net.0[1]), "second, type, first");
    assert_eq!(split(&net.2 .0), "whole");
    let expected =
        ["0.0.0.first.w", "0.0.0.second.w", "0.0.1.weight", "0.1.first.w", "0.1.second.w", "2.0.weight"];
    assert_eq!(paths(&net), expected);
    let Layer::List(list) = &net.0[0] else { panic!("a list") };
    let Layer::Chain(inner) = &list[0] else { panic!("a chain") };
    assert_eq!(*inner.r#type.0.lock().unwrap(), ["0.0.0.type"]);
}

#[test]
fn an_enum_is_a_target_if_its_variant_is_or_if_it_is_marked() {
    #[derive(Clone, Checkpointable)]
    #[checkpoint(segment)]
    enum Marked {
        Scale(Scale),
    }
    assert!(Layer::Chain(chain(1)).is_target());
    assert!(!Layer::List(Vec::new()).is_target());
    assert!(Marked::Scale(Scale::new(1)).is_target());
}

#[test]
fn an_enum_can_run_by_a_method() {
    #[derive(Clone, Checkpointable)]
    #[checkpoint(forward = "run")]
    enum Power {
        Once(Scale),
        Times(#[checkpoint(skip)] usize),
    }

    impl Power {
        fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
            match self {
                Power::Once(scale) => scale.forward(x, context),
                Power::Times(n) => Ok(x.into_dense("power")?.affine(*n as f64, 0.)?.into()),
            }
        }
    }

    let x = window();
    assert_same(&run(&Power::Once(Scale::new(3)), &x), &Scale::new(3).of(&x));
    assert_same(&run(&Power::Times(3), &x), &x.affine(3., 0.).unwrap());
    assert_eq!(split(&Power::Times(3)), "whole");
}

mod my {
    use memopt::compress::{Encoding, SpikeCompressor};

    /// Keeps everything as it is.
    #[derive(Debug, Default)]
    pub struct Plain<const N: usize>;

    impl<const N: usize> SpikeCompressor for Plain<N> {
        fn name(&self) -> &str {
            "plain"
        }

        fn encode(&self, _: &Tensor) -> memopt::Result<Encoding> {
            Ok(Encoding::AsIs)
        }
    }

    use candle_core::Tensor;
}

#[derive(Clone, Checkpointable)]
#[spatial_split(null, bit, byte, sparse, join(add; auto, own), none)]
struct Compressed {
    #[checkpoint(compressor = "null")]
    null: Scale,
    #[checkpoint(compressor = "bit")]
    bit: Scale,
    #[checkpoint(compressor = "byte")]
    byte: Scale,
    #[checkpoint(compressor = "sparse")]
    sparse: Scale,
    #[checkpoint(compressor = "auto")]
    auto: Scale,
    #[checkpoint(compressor = "my::Plain<3>")]
    own: Scale,
    none: Scale,
}

#[test]
fn declared_compressors_are_in_the_composition() {
    let scale = || Scale::new(1);
    let model = Compressed {
        null: scale(),
        bit: scale(),
        byte: scale(),
        sparse: scale(),
        auto: scale(),
        own: scale(),
        none: scale(),
    };
    let expected =
        "null: null, bit: bit, byte: byte, sparse: sparse, join(add; (auto: auto), (own: plain)), none";
    assert_eq!(split(&model), expected);
}

#[test]
fn module_t_is_the_forward_of_the_model_by_itself() {
    let (model, x) = (residual(None), window());
    for train in [true, false] {
        assert_same(&model.forward_t(&x, train).unwrap(), &run(&model, &x));
    }
    let layer: &dyn ModuleT = &Layer::Opaque(opaque());
    assert_same(&layer.forward_t(&x, true).unwrap(), &run(&opaque(), &x));
}

#[test]
fn gradients_reach_every_parameter_also_through_a_method() {
    let model = mixer();
    let gradients = run(&model, &window()).sqr().unwrap().sum_all().unwrap().backward().unwrap();
    for (path, tensor) in parameters(&model) {
        assert!(gradients.get(&tensor).is_some(), "{path} has no gradient");
    }
}

#[test]
fn the_twin_has_the_same_bits_and_no_graph() {
    let (model, x) = ((net(), mixer(), opaque(), residual(Some(Scale::new(4)))), window());
    let twin = model.detached();
    assert!(parameters(&twin).is_empty());
    assert_eq!(twin.1.rate, 0.7);
    assert_eq!(twin.3.last.name, "chain");
    let pairs = [
        (run(&model.0, &x), run(&twin.0, &x)),
        (run(&model.1, &x), run(&twin.1, &x)),
        (run(&model.2, &x), run(&twin.2, &x)),
        (run(&model.3, &x), run(&twin.3, &x)),
    ];
    for (ours, twins) in pairs {
        assert_same(&ours, &twins);
        assert!(ours.track_op() && !twins.track_op());
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(layers, join(self.mix; left, right))]
struct Chunked<M, const N: usize> {
    layers: [Vec<M>; N],
    left: Option<Box<M>>,
    right: (M, Scale),
}

impl<M, const N: usize> Chunked<M, N> {
    fn mix(&self, branches: &[Signal], _: &mut Context) -> Result<Signal> {
        Ok(branches[0].clone())
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run", time_chunks)]
struct Stepwise;

impl Stepwise {
    fn run(&self, x: Signal, _: &mut Context) -> Result<Signal> {
        Ok(x)
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
enum Either {
    Scale(Scale),
    Stepwise(Stepwise),
}

#[test]
fn time_chunks_make_a_type_time_chunkable() {
    fn assert<M: TimeChunkable>(model: &M) {
        assert!(model.is_time_chunkable());
    }
    assert(&Chunked { layers: [vec![Scale::new(1)]], left: None, right: (Scale::new(2), Scale::new(3)) });
    assert(&vec![Either::Scale(Scale::new(1)), Either::Stepwise(Stepwise)]);
}

#[test]
fn a_type_is_not_run_in_time_chunks_if_a_part_or_an_undeclared_method_forbids_it() {
    assert!(!residual(None).is_time_chunkable());
    assert!(!mixer().is_time_chunkable());
    assert!(!opaque().is_time_chunkable());
    assert!(!Layer::Opaque(opaque()).is_time_chunkable());
    assert!(Layer::List(Vec::new()).is_time_chunkable());
    let device = Device::Cpu;
    assert!(Scale { w: Tensor::ones(1, DType::F32, &device).unwrap() }.is_time_chunkable());
}
