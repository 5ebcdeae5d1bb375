//! Folds a function's inputs into one scalar, three at a time, and hands their gradients out.
//!
//! The tree is balanced: its depth is logarithmic in the number of inputs. Variables, at which Candle's walk stops, are
//! folded first; what leads further back comes last, next to the function's token, so that a chain of functions adds
//! two nodes a function to the depth of the walk.

use super::cell::{Answer, Cell};
use super::edge::{Edge, Target};
use super::token;
use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};
use std::sync::Arc;

/// What stands behind one argument of a join.
#[derive(Clone, Copy)]
enum Argument {
    /// Nothing: the argument is untracked.
    Empty,
    /// Another join.
    Join,
    /// The token of the function that made input `.0`.
    Function(usize),
    /// Input `.0` itself.
    Tensor(usize),
}

type Node = (Tensor, Argument);

struct Join {
    cell: Arc<Cell>,
    arguments: [Argument; 3],
}

impl CustomOp3 for Join {
    fn name(&self) -> &'static str {
        "memopt join"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok(token::forward())
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        _: &Tensor,
        _: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [i, j, k] = self.arguments;
        Ok((self.gradient(i, a)?, self.gradient(j, b)?, self.gradient(k, c)?))
    }
}

impl Join {
    fn gradient(&self, argument: Argument, tensor: &Tensor) -> Result<Option<Tensor>> {
        match argument {
            Argument::Empty => Ok(None),
            Argument::Join => token::deliveries(0, tensor.device()).map(Some),
            Argument::Function(input) => {
                let delivered = matches!(self.cell.take_answer(input), Answer::Delivered);
                token::deliveries(delivered as usize, tensor.device()).map(Some)
            }
            Argument::Tensor(input) => match self.cell.take_answer(input) {
                Answer::Gradient(gradient) => Ok(Some(gradient.into_tensor())),
                // Candle wants a gradient for whatever its walk passes through, but not for variables, where it ends.
                _ if tensor.is_variable() => Ok(None),
                _ => tensor.zeros_like().map(Some),
            },
        }
    }
}

/// The tracked inputs of a function, as arguments of joins.
pub(super) struct Arguments {
    /// Candle's walk ends at these.
    variables: Vec<Node>,
    /// It goes on through these.
    others: Vec<Node>,
}

impl Arguments {
    pub(super) fn of(inputs: &[Edge]) -> Self {
        let mut arguments = Arguments { variables: Vec::new(), others: Vec::new() };
        for (index, edge) in inputs.iter().enumerate() {
            match &edge.target {
                Target::Untracked => {}
                Target::Function(producer) => {
                    arguments.others.push((producer.token.clone(), Argument::Function(index)));
                }
                Target::Tensor(tensor) => {
                    let node = (tensor.clone(), Argument::Tensor(index));
                    let list =
                        if tensor.is_variable() { &mut arguments.variables } else { &mut arguments.others };
                    list.push(node);
                }
            }
        }
        arguments
    }

    pub(super) fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.others.is_empty()
    }

    /// The scalar that stands for all of them.
    pub(super) fn join(self, cell: &Arc<Cell>, device: &Device) -> Result<Tensor> {
        let Arguments { mut variables, others } = self;
        let nothing = token::untracked(device)?;
        while variables.len() > 1 && variables.len() + others.len() > 3 {
            variables = level(cell, variables, &nothing)?;
        }
        let mut nodes = variables;
        nodes.extend(others);
        while nodes.len() > 3 {
            nodes = level(cell, nodes, &nothing)?;
        }
        node(cell, &nodes, &nothing)
    }
}

/// One level of the tree: every three nodes become one; a node left over stays as it is.
fn level(cell: &Arc<Cell>, nodes: Vec<Node>, nothing: &Tensor) -> Result<Vec<Node>> {
    nodes
        .chunks(3)
        .map(|chunk| match chunk {
            [single] => Ok(single.clone()),
            several => Ok((node(cell, several, nothing)?, Argument::Join)),
        })
        .collect()
}

/// A join of up to three nodes.
fn node(cell: &Arc<Cell>, nodes: &[Node], nothing: &Tensor) -> Result<Tensor> {
    let at = |i: usize| nodes.get(i).cloned().unwrap_or((nothing.clone(), Argument::Empty));
    let [(a, i), (b, j), (c, k)] = [at(0), at(1), at(2)];
    a.apply_op3(&b, &c, Join { cell: cell.clone(), arguments: [i, j, k] })
}
