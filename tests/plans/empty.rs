//! Windows without images or time steps.

use super::common::bits;
use super::nets::{Kind, Setup};
use super::support::*;
use candle_core::{DType, Tensor};
use memopt::plan::{Keep, Plan};

/// What a step over a window gives: the gradients, or the error.
fn step(setup: &Setup, plan: &Plan, x: &Tensor) -> Result<Record, String> {
    let trainer = Trainer::new(|vb| setup.build(vb), DType::F32, plan.clone(), session(false)).unwrap();
    let y = trainer.net.run(x, true).map_err(|e| e.to_string())?.into_dense("output").unwrap();
    let gradients = y.sum_all().unwrap().backward().map_err(|e| e.to_string())?;
    let mut record = vec![("output".to_owned(), bits(&y))];
    record.extend(trainer.named.iter().map(|(name, v)| (name.clone(), gradients.get(v).map_or(vec![], bits))));
    Ok(record)
}

#[test]
fn look() {
    for kinds in [vec![Kind::Dropout], vec![Kind::Lif], vec![Kind::Residual]] {
        let setup = Setup::of(kinds);
        for shape in [[5usize, 0, 2, 6, 6], [0, 2, 2, 6, 6]] {
            let x = Tensor::zeros(&shape, DType::F32, CPU).unwrap();
            let mut plans = vec![("plain", Plan::new()), ("gc", Plan::new().with("pieces.0", Keep::Recompute)), ("tcgc", Plan::new().with("pieces.0", Keep::TimeChunks(2))), ("tcgc flatten", Plan::new().with("flatten", Keep::TimeChunks(2)))];
            plans.push(("head", Plan::new().with("head", Keep::TimeChunks(2))));
            plans.push(("ccgc", Plan::new().with("pieces.0", Keep::ChannelChunks(2))));
            for (name, plan) in plans {
                let r = std::panic::catch_unwind(|| step(&setup, &plan, &x));
                println!("{:?} {shape:?} {name}: {:?}", setup.kinds, r.map(|r| r.map(|r| r.iter().map(|(n, b)| format!("{n}:{}{}", b.len(), if b.iter().any(|b| *b != 0) { "!" } else { "" })).collect::<Vec<_>>().join(" "))).ok());
            }
        }
    }
}
