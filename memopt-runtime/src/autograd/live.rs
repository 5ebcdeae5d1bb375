//! The functions that are alive, and how deep their chains are.
//!
//! Candle's walk over the graph recurses, and so does dropping it, so a chain of functions must not get too long. Each
//! function knows the functions it follows directly; what lies behind plain operations is only looked for when so many
//! functions are alive that a chain could be too long.

use super::age::Age;
use candle_core::{DType, Shape, Tensor, TensorId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::LazyLock;

static LIVE: LazyLock<Mutex<HashMap<TensorId, Function>>> = LazyLock::new(Mutex::default);

struct Function {
    /// Length of the longest chain that ends in it, plain operations between its functions included; `None`: not looked
    /// for yet.
    depth: Option<usize>,
    /// Of its first output, to name it in errors.
    output: (Shape, DType),
}

/// A live function; it goes when its token goes.
pub(super) struct Live(TensorId);

impl Live {
    pub(super) fn new(token: &Tensor, depth: Option<usize>, output: (Shape, DType)) -> Self {
        LIVE.lock().insert(token.id(), Function { depth, output });
        Live(token.id())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.lock().remove(&self.0);
    }
}

/// Shape and dtype of the first output of the function with this token, if it is one.
pub(super) fn output_of(token: TensorId) -> Option<(Shape, DType)> {
    LIVE.lock().get(&token).map(|function| function.output.clone())
}

/// Number of functions alive.
pub(super) fn count() -> usize {
    LIVE.lock().len()
}

/// Length of the longest chain of functions behind a tensor, itself included.
pub(super) fn depth_behind(tensor: &Tensor) -> usize {
    let mut live = LIVE.lock();
    let mut tokens: Vec<&Tensor> =
        tensor.sorted_nodes().into_iter().filter(|node| live.contains_key(&node.id())).collect();
    // A function is older than those that follow it.
    tokens.sort_by_key(|token| Age::of(token.id()));
    let deepest = |live: &HashMap<TensorId, Function>, tokens: &[&Tensor], but: Option<TensorId>| {
        let others = tokens.iter().filter(|token| Some(token.id()) != but);
        others.filter_map(|token| live.get(&token.id())?.depth).max().unwrap_or(0)
    };
    for token in &tokens {
        if live.get(&token.id()).is_some_and(|function| function.depth.is_none()) {
            let depth = 1 + deepest(&live, &token.sorted_nodes(), Some(token.id()));
            if let Some(function) = live.get_mut(&token.id()) {
                function.depth = Some(depth);
            }
        }
    }
    deepest(&live, &tokens, None)
}
