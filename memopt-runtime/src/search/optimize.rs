//! The way from a model and a sample to a plan.

use super::account::Account;
use super::budget::Choice;
use super::cost::CostTable;
use super::levels::{self, Counts, Found};
use super::optimized::Optimized;
use super::options::{Options, Resolved};
use super::sample::{together, Sample};
use super::simulate::{predict, Prediction};
use super::summary::Resident;
use super::trace::Traced;
use super::verify::{self, Measured};
use crate::checkpoint::{targets_of, Planned};
use crate::module::{Checkpointable, Session, Signal};
use crate::parameters::distinct;
use crate::plan::Plan;
use crate::{Error, Result};
use candle_core::Tensor;
use std::time::Instant;

/// Finds a plan for a model.
///
/// `sample` is an input as training has it (`Sample::none()` without one). The variables stay the same, and nothing but
/// the plan is new: names, values, running statistics, random numbers.
///
/// ```
/// use candle_core::{DType, Device, ModuleT, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{init::seeded, BatchNorm, Lif, Linear};
/// use memopt_runtime::search::{optimize, Options, Prefer};
/// use memopt_runtime::checkpoint::Targets;
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let block = |name: &str| -> memopt_runtime::Result<_> {
///     let vb = vb.pp(name);
///     Ok((Linear::new(64, 64, Default::default(), vb.pp("fc"))?, BatchNorm::new(64, Default::default(), vb.pp("bn"))?, Lif::default()))
/// };
/// let net = vec![block("a")?, block("b")?];
/// let x = Tensor::ones((4, 8, 64), DType::F32, &Device::Cpu)?; // [T, N, C]
///
/// let options = Options::prefer(Prefer::Memory).targets(Targets::at("0").and_at("1"));
/// let net = optimize(net, &x, options)?;
/// println!("{}", net.summary());
/// net.forward_t(&x, true)?.sum_all()?.backward()?;
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
///
/// # Errors
/// If the options contradict each other, or name what the model does not have; if the samples do not fit the model, or
/// are of different shapes; if no plan fits in the memory budget.
pub fn optimize<M: Checkpointable>(
    model: M,
    sample: impl Into<Sample>,
    options: Options,
) -> Result<Optimized<M>> {
    let start = Instant::now();
    let sample = sample.into();
    let resolved = options.resolve(!sample.is_none())?;
    options.check_for(&model)?;
    let targets = targets_of(&model, options.targets.as_ref())?;
    let costs = options.costs();
    options.tell("looking at what flows through the model");
    let traced = sample.look(&model, &options, &costs)?;
    options.tell("searching");
    let choice = match &traced {
        Some(traced) => Choice::of(&model, traced, &options, &costs)?,
        None => Choice::of_all(&options, &costs),
    };
    // In a group, as it is on the process whose batch is the largest.
    let own = resident(&model, &sample, &options);
    let mut search = Search {
        options: &options,
        resolved,
        targets,
        costs: &costs,
        choice,
        traced: traced.as_ref(),
        resident: Resident { inputs: options.largest_of_group(own.inputs)?, ..own },
        notes: vec![],
    };
    let found = search.find();
    let found = search.agree(together(&options, found)?)?;

    let session = match options.carries_states {
        true => Session::new(options.seed).carry_states(),
        false => Session::new(options.seed),
    };
    let own = options.own_compressors.iter().cloned();
    let planned = Planned::with_compressors(model, found.plan.clone(), session, own)?;
    let (planned, found, measured) = search.verified(planned, found, sample.first())?;
    let baseline = search.traced.map(|traced| predict(traced, &Plan::new(), &costs));
    let Search { resolved, targets, traced, resident, notes, .. } = search;
    let account = Account {
        options: &options,
        resolved,
        targets: targets.len(),
        costs: &costs,
        traced,
        resident,
        notes,
        structure: planned.tree(),
        found,
        baseline,
        measured,
    };
    Ok(Optimized::new(planned, account.summary(start)))
}

/// What is there before a step.
pub(super) fn resident<M: Checkpointable>(model: &M, sample: &Sample, options: &Options) -> Resident {
    let bytes = |tensor: Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
    let weights = distinct(model).into_iter().map(bytes).sum();
    let optimizer = (weights as f64 * options.optimizer_bytes_per_parameter_byte) as usize;
    Resident { weights, gradients: 0, optimizer, inputs: sample.bytes(), internal: 0 }
}

/// How often a plan is searched again that takes more than the budget when it runs, before the smallest is tried.
const ATTEMPTS: usize = 5;

struct Search<'a> {
    options: &'a Options,
    resolved: Resolved,
    targets: Vec<String>,
    costs: &'a CostTable,
    choice: Choice<'a>,
    traced: Option<&'a Traced>,
    resident: Resident,
    notes: Vec<String>,
}

impl Search<'_> {
    /// The plan by what is predicted.
    fn find(&mut self) -> Result<Found> {
        let Some(traced) = self.traced else {
            let (plan, chosen, explanation) = levels::untraced(&self.targets, self.options, &self.resolved);
            let (prediction, counts) = (Prediction::default(), Counts::default());
            return Ok(Found { plan, prediction, log: vec![], counts, chosen, explanation });
        };
        if let Some(limit) = self.limit() {
            let found = self.within(traced, limit);
            return found.ok_or_else(|| self.nothing_fits(self.choice.smallest_peak(traced)));
        }
        if self.targets.is_empty() {
            self.notes.push(
                "no part is a target: mark some `#[checkpoint(segment)]`, name them with `Options::targets`, or give a memory \
                 budget"
                    .into(),
            );
        }
        Ok(levels::search(traced, &self.targets, self.options, &self.resolved, self.costs))
    }

    /// What a step may take under the budget.
    fn limit(&self) -> Option<usize> {
        self.options.memory_budget.map(|budget| budget.saturating_sub(self.resident.before_step()))
    }

    /// The fastest plan that is predicted to take no more than `limit` bytes.
    fn within(&self, traced: &Traced, limit: usize) -> Option<Found> {
        let plan = self.choice.fastest_within(traced, limit)?;
        let prediction = predict(traced, &plan, self.costs);
        let log = vec![format!(
            "the fastest plan within {limit} bytes beyond the {} that are resident: {} segments, {} bytes",
            self.resident.before_step(),
            plan.len(),
            prediction.peak
        )];
        let explanation = match self.options.targets {
            None => "a memory budget chooses among all parts, marked or not",
            Some(_) => "a memory budget chooses among the targets and what is inside of them",
        };
        let (counts, explanation) = (Counts::default(), explanation.to_owned());
        Some(Found { plan, prediction, log, counts, chosen: vec![], explanation })
    }

    /// No step fits: the smallest takes so many bytes.
    fn nothing_fits(&self, smallest: usize) -> Error {
        let before = self.resident.before_step();
        let budget = self.options.memory_budget.unwrap_or_default();
        Error::Budget { budget, smallest: before.saturating_add(smallest), resident: before }
    }

    /// In a group of processes, the plan of the first.
    fn agree(&self, found: Found) -> Result<Found> {
        let Some(agreement) = &self.options.agreement else { return Ok(found) };
        let plan: Plan = agreement.of_first(&found.plan.to_string())?.parse()?;
        // On this one's sample it may take something else.
        let prediction = match self.traced {
            Some(traced) if plan != found.plan => predict(traced, &plan, self.costs),
            _ => found.prediction,
        };
        let peak = self.options.largest_of_group(prediction.peak)?;
        Ok(Found { plan, prediction: Prediction { peak, ..prediction }, ..found })
    }

    /// Runs a step of the plan, if one is to be run. If it takes more than the budget has, the plan is searched again,
    /// with the difference taken from the budget.
    fn verified<M: Checkpointable>(
        &mut self,
        mut planned: Planned<M>,
        mut found: Found,
        sample: Option<&Signal>,
    ) -> Result<(Planned<M>, Found, Option<Measured>)> {
        let is_wanted = self.options.verify.unwrap_or(!found.plan.is_empty() || self.limit().is_some());
        let (Some(sample), Some(traced), true) = (sample, self.traced, is_wanted) else {
            return Ok((planned, found, None));
        };
        let (mut log, mut smallest, mut is_last) = (Vec::new(), usize::MAX, false);
        for attempt in 0.. {
            self.options.tell("running a step of the plan");
            if self.options.warm_up && attempt == 0 {
                together(self.options, verify::step(&planned, sample))?;
            }
            let mut measured = together(self.options, verify::step(&planned, sample))?;
            measured.peak = measured.peak.map(|peak| self.options.largest_of_group(peak)).transpose()?;
            let over = self.limit().zip(measured.peak).filter(|(limit, peak)| peak > limit);
            let Some((limit, peak)) = over else {
                found.log.splice(0..0, log);
                return Ok((planned, found, Some(measured)));
            };
            smallest = smallest.min(peak);
            if is_last {
                break;
            }
            log.append(&mut found.log);
            log.push(format!("a step takes {peak} bytes, {} more than the budget has", peak - limit));
            // What was wrong by so much for this plan may be for others.
            let excess = peak - found.prediction.peak.min(limit);
            let next = limit.checked_sub(excess).and_then(|limit| self.within(traced, limit));
            is_last = next.is_none() || attempt + 1 == ATTEMPTS;
            let least = || self.within(traced, self.choice.smallest_peak(traced));
            let next = next.filter(|_| !is_last).or_else(least);
            let next = together(self.options, next.ok_or_else(|| self.nothing_fits(smallest)))?;
            found = self.agree(next)?;
            planned = planned.with_plan(found.plan.clone())?;
        }
        Err(self.nothing_fits(smallest))
    }
}
