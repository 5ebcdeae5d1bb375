//! How the outputs of branches become one signal.

use super::checkpointable::Checkpointable;
use super::context::Context;
use super::footprint::{Footprint, Incoming, Work};
use super::join_functions as functions;
use super::signal::Signal;
use crate::parameters::parameters;
use crate::{Error, Result};
use candle_core::Tensor;
use std::sync::Arc;

/// A method of a model that joins branches.
pub type JoinMethod<M> = fn(&M, &[Signal], &mut Context) -> Result<Signal>;

/// A model and its method, without the model's type.
trait Method: Send + Sync {
    fn apply(&self, branches: &[Signal], context: &mut Context) -> Result<Signal>;
    fn detached(&self) -> Arc<dyn Method>;
    fn parameters(&self) -> Vec<Tensor>;
}

struct Bound<M> {
    model: M,
    method: JoinMethod<M>,
}

impl<M: Checkpointable> Method for Bound<M> {
    fn apply(&self, branches: &[Signal], context: &mut Context) -> Result<Signal> {
        (self.method)(&self.model, branches, context)
    }

    fn detached(&self) -> Arc<dyn Method> {
        Arc::new(Bound { model: self.model.detached(), method: self.method })
    }

    fn parameters(&self) -> Vec<Tensor> {
        parameters(&self.model).into_iter().map(|(_, tensor)| tensor).collect()
    }
}

/// A method of a model as a join.
#[derive(Clone)]
pub struct MethodJoin {
    name: &'static str,
    method: Arc<dyn Method>,
    is_time_chunkable: bool,
}

/// How a join's backward hands gradients on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handing {
    /// A copy to each branch that wants one, the gradient's own buffer to the last.
    Copies,
    /// A part of it to each.
    Parts,
    /// Its product with the other branch's output to each; with `1 - a` of the first, if `inverted`.
    Products { inverted: bool },
}

/// How the outputs of branches become one signal.
#[derive(Clone)]
#[non_exhaustive]
pub enum JoinOp {
    /// The sum.
    Add,
    /// The product, element by element.
    Mul,
    /// Both fire: the product of spikes.
    And,
    /// `(1 - first) * second`: the second fires and the first does not.
    Iand,
    /// Side by side along the channels: the third dimension of `[T, N, C, ...]`.
    Concat,
    /// A method of the model.
    Method(MethodJoin),
}

impl JoinOp {
    /// A join by a method of the model.
    pub fn method<M: Checkpointable>(name: &'static str, model: &M, method: JoinMethod<M>) -> Self {
        let method = Arc::new(Bound { model: model.clone(), method });
        JoinOp::Method(MethodJoin { name, method, is_time_chunkable: false })
    }

    /// The same join, of which its author says that it joins each time step by itself.
    pub fn time_chunkable(self) -> Self {
        match self {
            JoinOp::Method(join) => JoinOp::Method(MethodJoin { is_time_chunkable: true, ..join }),
            other => other,
        }
    }

    /// The detached twin.
    pub fn detached(&self) -> Self {
        match self {
            JoinOp::Method(join) => {
                JoinOp::Method(MethodJoin { method: join.method.detached(), ..join.clone() })
            }
            other => other.clone(),
        }
    }

    /// The parameters that it may use: all of the model whose method it is.
    pub fn parameters(&self) -> Vec<Tensor> {
        match self {
            JoinOp::Method(join) => join.method.parameters(),
            _ => Vec::new(),
        }
    }

    /// Whether it joins each time step by itself; of a method its author must say so.
    pub fn is_time_chunkable(&self) -> bool {
        match self {
            JoinOp::Method(join) => join.is_time_chunkable,
            _ => true,
        }
    }

    /// Whether its backward needs the outputs of the branches; of a method that is not known.
    pub(crate) fn keeps_branches(&self) -> bool {
        !matches!(self, JoinOp::Add | JoinOp::Concat)
    }

    /// How its backward hands gradients on.
    pub(crate) fn handing(&self) -> Handing {
        match self {
            JoinOp::Add => Handing::Copies,
            JoinOp::Concat => Handing::Parts,
            JoinOp::Mul | JoinOp::And | JoinOp::Method(_) => Handing::Products { inverted: false },
            JoinOp::Iand => Handing::Products { inverted: true },
        }
    }

    /// What the join takes beside the outputs of its branches and its own, where that is `output`; of a method it is a guess.
    pub(crate) fn footprint(&self, output: &Incoming) -> Footprint {
        let work = Work::moving(2 * output.bytes());
        let scratch = match self {
            // 1 - a
            JoinOp::Iand | JoinOp::Method(_) => output.bytes(),
            _ => 0,
        };
        let forward = work.with_scratch(scratch);
        Footprint { output: output.dims.clone(), forward, backward: work, ..Footprint::default() }
    }

    /// The word for it in `join(...)`.
    pub fn name(&self) -> &'static str {
        match self {
            JoinOp::Add => "add",
            JoinOp::Mul => "mul",
            JoinOp::And => "and",
            JoinOp::Iand => "iand",
            JoinOp::Concat => "concat",
            JoinOp::Method(join) => join.name,
        }
    }

    /// Whether the branches fit each other; of a method that is not known.
    fn check(&self, branches: &[Signal], part: &str) -> Result<()> {
        let of = |x: &Tensor| {
            let mut dims = x.dims().to_vec();
            if let (JoinOp::Concat, Some(channels)) = (self, dims.get_mut(2)) {
                *channels = 0;
            }
            (dims, x.dtype())
        };
        let tensors = || {
            branches.iter().filter_map(|branch| if let Signal::Dense(x) = branch { Some(x) } else { None })
        };
        let fit = tensors().zip(tensors().skip(1)).all(|(a, b)| of(a) == of(b));
        if fit || matches!(self, JoinOp::Method(_)) {
            return Ok(());
        }
        let given: Vec<String> = tensors().map(|x| format!("{:?} of {:?}", x.dims(), x.dtype())).collect();
        let but = if matches!(self, JoinOp::Concat) { ", but for their channels," } else { "" };
        Err(Error::LayerInput {
            part: part.to_owned(),
            what: format!(
                "the branches of `{}` must have one shape and dtype{but} and give {}",
                self.name(),
                given.join(", ")
            ),
        })
    }

    pub(super) fn apply(&self, branches: Vec<Signal>, context: &mut Context) -> Result<Signal> {
        let part = context.path().to_owned();
        let branches: Vec<Signal> = branches.into_iter().map(Signal::unpacked).collect::<Result<_>>()?;
        let wrong = |got| Error::JoinBranches { part: part.clone(), op: self.name(), got };
        let dense = |branches: Vec<Signal>| -> Result<Vec<Tensor>> {
            branches.into_iter().map(|branch| branch.into_dense(&part)).collect()
        };
        let given = branches.len();
        self.check(&branches, &part)?;
        match self {
            _ if given == 0 => Err(wrong(0)),
            JoinOp::Add => Ok(functions::sum(&part, &dense(branches)?)?.into()),
            JoinOp::Mul | JoinOp::And => {
                let mut tensors = dense(branches)?.into_iter();
                let first = tensors.next().ok_or_else(|| wrong(0))?;
                Ok(tensors.try_fold(first, |a, b| functions::product(&part, &a, &b))?.into())
            }
            JoinOp::Iand => match dense(branches)?.as_slice() {
                [first, second] => Ok(functions::inverted_product(&part, first, second)?.into()),
                other => Err(wrong(other.len())),
            },
            JoinOp::Concat => Ok(functions::concatenation(&part, &dense(branches)?)?.into()),
            // What it runs is not in the split tree, so that no plan is about it.
            JoinOp::Method(join) => context.plainly(|context| join.method.apply(&branches, context)),
        }
    }
}

impl std::fmt::Debug for JoinOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
