//! Random networks under random plans.

use super::nets::{Kind, Setup};
use super::support::*;
use candle_core::DType;
use memopt::plan::{Compressor, Keep, Plan, Segment};
use proptest::prelude::*;
use proptest::sample::select;

/// A piece of a network, and what a plan makes of it.
#[derive(Debug, Clone)]
struct Choice {
    kind: Kind,
    /// In one segment with the next piece.
    joined: bool,
    /// For the piece, and for the second block of a residual one.
    ways: [Way; 2],
}

/// How a block is kept; the number is of chunks.
#[derive(Debug, Clone)]
enum Way {
    Plain,
    Whole(Segment),
    /// Projection and neuron by themselves.
    Split(Segment, Segment),
    /// The same inside of a segment.
    Nested(Segment, Segment),
    Time(usize),
    Channels(usize),
}

fn segment() -> impl Strategy<Value = Segment> {
    let compressors = [
        None,
        Some(Compressor::Null),
        Some(Compressor::Bit),
        Some(Compressor::Sparse),
        Some(Compressor::Auto),
    ];
    let keep = prop_oneof![Just(Keep::Recompute), (1usize..8).prop_map(Keep::TimeChunks)];
    (keep, select(compressors.to_vec())).prop_map(|(keep, compressor)| Segment { keep, compressor })
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![
        Just(Way::Plain),
        segment().prop_map(Way::Whole),
        (segment(), segment()).prop_map(|(a, b)| Way::Split(a, b)),
        (segment(), segment()).prop_map(|(a, b)| Way::Nested(a, b)),
        (1usize..8).prop_map(Way::Time),
        (1usize..8).prop_map(Way::Channels),
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    let kinds =
        [Kind::Lif, Kind::Lif, Kind::Plif, Kind::Psn, Kind::Residual, Kind::ResidualProjected, Kind::Dropout];
    (select(kinds.to_vec()), any::<bool>(), [way(), way()]).prop_map(|(kind, joined, ways)| Choice {
        kind,
        joined,
        ways,
    })
}

/// The segment, or a recompute of the whole where that part cannot be cut in time.
fn unless(whole: bool, segment: &Segment) -> Segment {
    Segment { keep: if whole { Keep::Recompute } else { segment.keep }, ..segment.clone() }
}

/// What is inside of the segment of a block, or of no segment.
fn inside(plan: Plan, path: &str, kind: Kind, way: &Way) -> Plan {
    let (Way::Split(proj, neuron) | Way::Nested(proj, neuron)) = way else { return plan };
    plan.with(format!("{path}.proj"), proj.clone())
        .with(format!("{path}.neuron"), unless(kind == Kind::Psn, neuron))
}

fn block(plan: Plan, path: &str, kind: Kind, way: &Way) -> Plan {
    let whole = match way {
        Way::Plain | Way::Split(..) => None,
        Way::Whole(segment) => Some(unless(kind == Kind::Psn, segment)),
        Way::Nested(..) => Some(Keep::Recompute.into()),
        Way::Time(chunks) => Some(unless(kind == Kind::Psn, &Keep::TimeChunks(*chunks).into())),
        Way::Channels(chunks) if kind == Kind::Lif => Some(Keep::ChannelChunks(*chunks).into()),
        Way::Channels(_) => Some(Keep::Recompute.into()),
    };
    let plan = whole.into_iter().fold(plan, |plan, whole: Segment| plan.with(path, whole));
    inside(plan, path, kind, way)
}

impl Choice {
    fn is_chunkable(&self) -> bool {
        !matches!(self.kind, Kind::Psn | Kind::Residual | Kind::ResidualProjected)
    }

    /// What the plan makes of the piece at `path`, which is in a segment already if it `is_covered`.
    fn plan(&self, plan: Plan, path: &str, is_covered: bool) -> Plan {
        let [first, second] = &self.ways;
        match self.kind {
            Kind::Residual | Kind::ResidualProjected => {
                let around = matches!(first, Way::Nested(..)) && !is_covered;
                let plan = if around { plan.with(path, Keep::Recompute) } else { plan };
                let plan = block(plan, &format!("{path}.first"), Kind::Lif, first);
                block(plan, &format!("{path}.second"), Kind::Plif, second)
            }
            Kind::Dropout => match first {
                Way::Whole(segment) if !is_covered => plan.with(path, segment.clone()),
                _ => plan,
            },
            kind if is_covered => inside(plan, path, kind, first),
            kind => block(plan, path, kind, first),
        }
    }
}

/// Ranges of joined pieces, each in a segment; the others by themselves; the layers behind them as one.
fn plan(pieces: &[Choice], range: &Segment, around: bool, tail: Option<Segment>) -> Plan {
    let mut plan = tail.into_iter().fold(Plan::new(), |plan, tail| plan.with("pool..head", tail));
    if around {
        plan = plan.with("pieces", Keep::Recompute);
    }
    let mut first = 0;
    while first < pieces.len() {
        let more = pieces[first..pieces.len() - 1].iter().take_while(|piece| piece.joined).count();
        let last = first + more;
        let range = unless(!pieces[first..=last].iter().all(Choice::is_chunkable), range);
        if last > first {
            plan = plan.with(format!("pieces.{first}..{last}"), range.clone());
        }
        for (index, piece) in pieces.iter().enumerate().take(last + 1).skip(first) {
            // Nothing inside of a chunk is a segment.
            if last == first || range.keep == Keep::Recompute {
                plan = piece.plan(plan, &format!("pieces.{index}"), last > first);
            }
        }
        first = last + 1;
    }
    plan
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_networks_under_random_plans(
        pieces in prop::collection::vec(choice(), 1..6),
        (range, around, tail) in (segment(), prop::bool::weighted(0.2), prop::option::of(segment())),
        (steps, batch) in (1usize..7, 1usize..4),
        width in prop_oneof![9 => Just(3usize), 1 => Just(40)],
        dtype in select(vec![DType::F32, DType::F32, DType::F64, DType::BF16]),
        (seed, carry) in (0u64..1000, any::<bool>()),
    ) {
        let kinds = pieces.iter().map(|piece| piece.kind).collect();
        let setup = Setup { kinds, width, steps, batch, dtype, seed };
        let plan = plan(&pieces, &range, around, tail);
        let plain = setup.train(Plan::new(), session(carry)).unwrap();
        match setup.train(plan.clone(), session(carry)) {
            Ok(ours) => prop_assert_eq!(differing(&ours, &plain), Vec::<String>::new(), "{}", plan),
            Err(error) => prop_assert!(false, "{}, under\n{}", error, plan),
        }
    }
}
