//! What a rank was called with: the others compare it with theirs before any data moves.

use super::communicator::Reduce;
use super::error::GroupError;
use std::fmt::{Display, Formatter};

/// The type of what is reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F64,
    U64,
}

impl Kind {
    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::F64 | Kind::U64 => 8,
        }
    }
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// With the number of elements.
    AllReduce(Kind, Reduce, usize),
    /// From a root.
    Broadcast(usize),
    Barrier,
    /// The rank's last: it makes no call any more.
    Leave,
}

/// How many words describe a call.
pub(super) const WORDS: usize = 3;

impl Call {
    /// The call in words that can be sent; the first is never 0.
    pub(super) fn words(self) -> [u64; WORDS] {
        match self {
            Call::AllReduce(kind, reduce, len) => [1, kind as u64 * 2 + reduce as u64, len as u64],
            Call::Broadcast(root) => [2, 0, root as u64],
            Call::Barrier => [3, 0, 0],
            Call::Leave => [4, 0, 0],
        }
    }

    /// The call that such words are.
    pub(super) fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let [call, how, count] = words;
        let count = usize::try_from(count).ok()?;
        Some(match call {
            1 => {
                let kind = match how / 2 {
                    0 => Kind::F32,
                    1 => Kind::F64,
                    2 => Kind::U64,
                    _ => return None,
                };
                let reduce = if how % 2 == 0 { Reduce::Sum } else { Reduce::Max };
                Call::AllReduce(kind, reduce, count)
            }
            2 => Call::Broadcast(count),
            3 => Call::Barrier,
            4 => Call::Leave,
            _ => return None,
        })
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Call::AllReduce(kind, reduce, len) => {
                let kind = match kind {
                    Kind::F32 => "f32",
                    Kind::F64 => "f64",
                    Kind::U64 => "u64",
                };
                let reduce = match reduce {
                    Reduce::Sum => "sum",
                    Reduce::Max => "maximum",
                };
                write!(f, "all_reduce ({reduce} of {len} {kind})")
            }
            Call::Broadcast(root) => write!(f, "broadcast (from rank {root})"),
            Call::Barrier => f.write_str("barrier"),
            Call::Leave => f.write_str("nothing any more"),
        }
    }
}

/// Whether the ranks' words are all the same call, this one.
///
/// # Errors
/// If they are not, on every rank with the same words: if a rank has left it is that one which failed, otherwise the
/// first that differs from rank 0 is named.
pub(super) fn compare(all: &[[u64; WORDS]]) -> Result<(), GroupError> {
    let call = |rank: usize| Call::from_words(all[rank]);
    let said = |rank: usize| call(rank).map_or_else(|| format!("{:?}", all[rank]), |call| call.to_string());
    let Some(other) = (1..all.len()).find(|&rank| all[rank] != all[0]) else { return Ok(()) };
    if let Some(left) = (0..all.len()).find(|&rank| call(rank) == Some(Call::Leave)) {
        let waiting = if left == 0 { other } else { 0 };
        let why = format!("it left early, while rank {waiting} called {}", said(waiting));
        return Err(GroupError::RankFailed { rank: left, why });
    }
    Err(GroupError::Mismatch { rank: 0, call: said(0), other, other_call: said(other) })
}
