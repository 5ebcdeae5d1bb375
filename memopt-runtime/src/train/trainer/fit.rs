//! Epochs.

use super::log::Log;
use super::pace::Pace;
use super::{
    group, saved, wrong, Evaluation, Metrics, Pending, StepReport, Trainable, Trainer, TrainingSummary,
};
use crate::data::{Batch, Collate, Loader, Position};
use crate::dist::{broadcast_parameters, in_common, Communicator};
use crate::snapshot::Store;
use crate::train::{Optimizer, Step};
use crate::Result;
use candle_core::Tensor;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// A line of the log.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Step(&'a StepReport),
    Evaluation(&'a Evaluation),
}

/// What one call of `fit` gathers.
struct Gathered {
    pace: Pace,
    /// Micro-batches of an epoch.
    batches: u64,
    store: Option<Store>,
    saved: Option<PathBuf>,
    evaluations: Vec<Evaluation>,
}

impl<M: Trainable, O: Optimizer> Trainer<M, O> {
    /// Trains until [`epochs`](super::TrainerConfig::epochs) are over, from the beginning or where a
    /// [resumption](Self::resume), or the last call that failed, left off.
    ///
    /// `loss` gives the mean loss of a batch, as a scalar, not scaled by anything; `evaluate` is called at the end of each epoch.
    ///
    /// # Errors
    /// Those of the loader, the two closures, the steps, snapshots and the log; if the loader has its samples in another order than
    /// where a resumption left off; if the folder has snapshots of another training; if ranks differ, or one fails.
    pub fn fit<S, C, L, E>(&mut self, loader: &Loader<S, C>, loss: L, evaluate: E) -> Result<TrainingSummary>
    where
        S: Send + 'static,
        C: Collate<S> + 'static,
        C::Batch: 'static,
        L: FnMut(&M, &C::Batch) -> Result<Tensor>,
        E: FnMut(&M) -> Result<Metrics>,
    {
        let communicator = self.communicator.clone();
        group::or_tell(&*communicator, || self.run(loader, loss, evaluate))
    }

    fn run<S, C, L, E>(
        &mut self,
        loader: &Loader<S, C>,
        mut loss: L,
        mut evaluate: E,
    ) -> Result<TrainingSummary>
    where
        S: Send + 'static,
        C: Collate<S> + 'static,
        C::Batch: 'static,
        L: FnMut(&M, &C::Batch) -> Result<Tensor>,
        E: FnMut(&M) -> Result<Metrics>,
    {
        let began = Instant::now();
        let loader = loader.clone().shard(self.communicator.rank(), self.communicator.size());
        let begins = self.position.is_none();
        let mut position = match self.position {
            Some(position) => position,
            None => loader.beginning()?,
        };
        self.check_ranks(&position)?;
        let store = self.store()?;
        self.open_log()?;
        let batches = loader.batches()? as u64;
        let mut gathered =
            Gathered { pace: Pace::begin()?, batches, store, saved: None, evaluations: Vec::new() };
        if begins {
            self.position = Some(position);
            self.save_to_folder(&mut gathered)?;
        }
        loop {
            self.end_epochs(&position, &mut evaluate, &mut gathered)?;
            if position.epoch() >= self.config.epochs {
                break;
            }
            for batch in loader.resume(&position)? {
                position = self.micro_batch(batch?, &mut loss, &mut gathered)?;
            }
        }
        let (samples_per_second, peak_bytes) = gathered.pace.total();
        Ok(TrainingSummary {
            totals: self.accumulator.totals(),
            evaluations: gathered.evaluations,
            elapsed: began.elapsed(),
            samples_per_second,
            peak_bytes,
            saved: gathered.saved,
        })
    }

    /// Goes back from a batch, and gives the position behind it.
    fn micro_batch<B>(
        &mut self,
        batch: Batch<B>,
        loss: &mut impl FnMut(&M, &B) -> Result<Tensor>,
        gathered: &mut Gathered,
    ) -> Result<Position> {
        let position = batch.next;
        let value = loss(&self.model, &batch.data)?;
        let step = self.accumulator.backward(&value, batch.indices.len())?;
        drop((value, batch));
        let before = self.position.replace(position);
        if let Some(step) = step {
            let epoch = before.map_or(0, |before| before.epoch());
            self.stepped(step, epoch, gathered)?;
        }
        Ok(position)
    }

    /// Steps on what is left, and evaluates, if an epoch has ended for which that was not done.
    fn end_epochs(
        &mut self,
        position: &Position,
        evaluate: &mut impl FnMut(&M) -> Result<Metrics>,
        gathered: &mut Gathered,
    ) -> Result<()> {
        while self.evaluated < position.epoch().min(self.config.epochs) {
            let epoch = self.evaluated;
            // The same number is pending on all ranks.
            if self.accumulator.pending() > 0 {
                if let Some(step) = self.accumulator.finish()? {
                    self.stepped(step, epoch, gathered)?;
                }
            }
            self.share_variables()?;
            let metrics = evaluate(&self.model)?;
            let evaluation = Evaluation { epoch, number: self.accumulator.totals().steps, metrics };
            self.write(&Line::Evaluation(&evaluation))?;
            if let Some(hook) = &mut self.on_evaluation {
                hook(&evaluation);
            }
            gathered.evaluations.push(evaluation);
            self.evaluated += 1;
            self.save_to_folder(gathered)?;
            gathered.pace.go_on()?;
        }
        Ok(())
    }

    /// Reports a step, and saves if it is time to.
    fn stepped(&mut self, step: Step, epoch: u64, gathered: &mut Gathered) -> Result<()> {
        let (samples_per_second, peak_bytes) = gathered.pace.step(step.samples)?;
        let micro_batch = match &self.position {
            Some(position) if position.epoch() == epoch => position.batch(),
            _ => gathered.batches,
        };
        let micro_batches_of_epoch = gathered.batches;
        let report =
            StepReport { epoch, micro_batch, micro_batches_of_epoch, step, samples_per_second, peak_bytes };
        self.write(&Line::Step(&report))?;
        if let Some(hook) = &mut self.on_step {
            hook(&report);
        }
        if self.config.save_every.is_some_and(|every| self.attempts().is_multiple_of(every)) {
            self.save_to_folder(gathered)?;
        }
        gathered.pace.go_on()
    }

    /// Steps made and skipped.
    fn attempts(&self) -> u64 {
        let totals = self.accumulator.totals();
        totals.steps + totals.skipped_steps
    }

    /// Whether all ranks begin with the same, of which they get the variables of rank 0.
    fn check_ranks(&self, position: &Position) -> Result<()> {
        if self.communicator.size() == 1 {
            return Ok(());
        }
        let mut list: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let config = &self.config;
        list.push(format!("epochs: {}, a snapshot each: {:?}", config.epochs, config.save_every));
        list.push(format!("a folder of snapshots: {}", config.folder.is_some()));
        list.push(format!("position: {position:?}"));
        let plan = self.model.saved_plan().map(|plan| plan.to_json()).transpose()?.unwrap_or_default();
        list.extend(plan.lines().map(|line| format!("plan: {line}")));
        in_common(&*self.communicator, &list, None, false)?;
        self.share_variables()
    }

    /// Gives all ranks the variables of rank 0.
    fn share_variables(&self) -> Result<()> {
        match self.communicator.size() {
            1 => Ok(()),
            _ => {
                let variables = saved::variables_of(&self.variables, &self.accumulator)?;
                broadcast_parameters(&*self.communicator, &variables)
            }
        }
    }

    /// The folder of the snapshots, on rank 0, without later ones than the one that is gone on from.
    fn store(&mut self) -> Result<Option<Store>> {
        let Some(folder) = self.config.folder.as_ref().filter(|_| self.communicator.rank() == 0) else {
            return Ok(None);
        };
        let store = Store::open(folder, self.config.keep)?;
        let is_own = |from: &PathBuf| match (from.canonicalize(), folder.canonicalize()) {
            (Ok(from), Ok(folder)) => from == folder,
            _ => false,
        };
        match &self.resumed {
            Some((from, step)) if is_own(from) => {
                for deleted in store.delete_after(*step)? {
                    tracing::warn!("deleted, since training goes on before it: `{}`", deleted.display());
                }
            }
            _ => {
                if let Some(latest) = store.steps()?.last() {
                    return Err(wrong(format!(
                        "`{}` has snapshots of another training (up to number {latest}); `resume` from it, or give an empty \
                         folder",
                        folder.display()
                    )));
                }
            }
        }
        Ok(Some(store))
    }

    /// Opens the log on rank 0.
    fn open_log(&mut self) -> Result<()> {
        if let (None, Some(path), 0) = (&self.log, &self.config.log, self.communicator.rank()) {
            let log = Log::open(path, self.log_bytes)?;
            self.log = Some(log);
        }
        Ok(())
    }

    fn write(&mut self, line: &Line<'_>) -> Result<()> {
        match &mut self.log {
            Some(log) => log.write(line),
            None => Ok(()),
        }
    }

    /// Saves where training stands, if there is a folder.
    fn save_to_folder(&mut self, gathered: &mut Gathered) -> Result<()> {
        if self.config.folder.is_none() {
            return Ok(());
        }
        let snapshot = self.snapshot(Pending::Refused)?;
        if let Some(store) = &gathered.store {
            let number = self.attempts();
            let saved = store.save(number, &snapshot)?;
            self.resumed = self.config.folder.clone().map(|folder| (folder, number));
            gathered.saved = Some(saved.path);
        }
        Ok(())
    }
}
