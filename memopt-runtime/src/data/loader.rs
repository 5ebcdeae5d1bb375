//! How batches are made.

use super::work::{Augmented, Plain, Samples, Work};
use super::{Batches, Collate, DataError, Dataset, Order, Position, Random, SampleResult, Stack};
use crate::Result;
use std::sync::Arc;

/// Makes batches of a data set. See the [module's documentation](super).
///
/// Without further options: batches of one, in the order of the data set, stacked time first, made in the caller's thread.
pub struct Loader<S, C = Stack> {
    samples: Arc<dyn Samples<S>>,
    collate: Arc<C>,
    batch_size: usize,
    drop_last: bool,
    shuffle: bool,
    seed: u64,
    rank: usize,
    ranks: usize,
    threads: usize,
    prefetch: usize,
}

/// Samples and collate function are shared.
impl<S, C> Clone for Loader<S, C> {
    fn clone(&self) -> Self {
        Loader { samples: self.samples.clone(), collate: self.collate.clone(), ..*self }
    }
}

impl<S: Send + 'static> Loader<S> {
    /// A loader for a data set, which it keeps; an `Arc` of one is one.
    pub fn new<D: Dataset<Sample = S> + 'static>(dataset: D) -> Self {
        Loader {
            samples: Arc::new(Plain(dataset)),
            collate: Arc::new(Stack::default()),
            batch_size: 1,
            drop_last: false,
            shuffle: false,
            seed: 0,
            rank: 0,
            ranks: 1,
            threads: 0,
            prefetch: 2,
        }
    }
}

impl<S: Send + 'static, C> Loader<S, C> {
    /// Samples in a batch of one rank.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch_size = samples;
        self
    }

    /// Whether the samples that remain for no full batch are left out of an epoch. If not, they are a smaller batch.
    pub fn drop_last(mut self, drop: bool) -> Self {
        self.drop_last = drop;
        self
    }

    /// Whether each epoch has an order of its own, a function of the seed and the epoch.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// The seed of shuffling and augmentation. It must be the same on all ranks.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Makes the batches of one of several ranks; [`Order`] says which samples these are.
    pub fn shard(mut self, rank: usize, ranks: usize) -> Self {
        (self.rank, self.ranks) = (rank, ranks);
        self
    }

    /// So many threads get samples and make batches ahead; 0: the caller's thread does, when it asks for a batch.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Number of batches that threads make ahead, beyond the one that the caller has; that many are in memory. 0: threads share
    /// the samples of a batch when the caller asks for it.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// How samples become a batch.
    pub fn collate<C2: Collate<S>>(self, collate: C2) -> Loader<S, C2> {
        let Loader { samples, batch_size, drop_last, shuffle, seed, rank, ranks, threads, prefetch, .. } =
            self;
        let collate = Arc::new(collate);
        Loader { samples, collate, batch_size, drop_last, shuffle, seed, rank, ranks, threads, prefetch }
    }

    /// Changes every sample, with random numbers that are a function of seed, epoch and index. Several are applied in turn, each with
    /// numbers of its own.
    ///
    /// ```
    /// use memopt_runtime::data::{Loader, Random};
    ///
    /// let loader = Loader::new(vec![1f32, 2., 3.]).batch_size(3).augment(|x, random: &mut Random| {
    ///     Ok(x + random.normal() as f32)
    /// });
    /// let values = |loader: &Loader<f32>, epoch| -> memopt_runtime::Result<Vec<f32>> {
    ///     Ok(loader.epoch(epoch)?.next().unwrap()?.data.to_vec1()?)
    /// };
    /// let first = values(&loader, 0)?;
    /// assert_ne!(values(&loader, 1)?, first);
    /// assert_eq!(values(&loader.clone().threads(2), 0)?, first);
    /// # Ok::<(), memopt_runtime::Error>(())
    /// ```
    pub fn augment<A: Send + 'static, F>(self, change: F) -> Loader<A, C>
    where
        F: Fn(S, &mut Random) -> SampleResult<A> + Send + Sync + 'static,
    {
        let Loader { samples, collate, batch_size, drop_last, shuffle, seed, rank, ranks, threads, prefetch } =
            self;
        let samples = Arc::new(Augmented { samples, change });
        Loader { samples, collate, batch_size, drop_last, shuffle, seed, rank, ranks, threads, prefetch }
    }

    /// Which samples are in which batch.
    pub fn order(&self) -> Order {
        Order {
            samples: self.samples.len(),
            batch_size: self.batch_size,
            ranks: self.ranks,
            drop_last: self.drop_last,
            shuffle: self.shuffle,
            seed: self.seed,
        }
    }

    /// Number of batches in an epoch.
    ///
    /// # Errors
    /// [`DataError::Options`] if the options make no sense, or the samples cannot be shared out.
    pub fn batches(&self) -> Result<usize> {
        self.batches_of(&self.order())
    }

    /// The order is asked for once: a data set may grow.
    fn batches_of(&self, order: &Order) -> Result<usize> {
        if self.ranks > 0 && self.rank >= self.ranks {
            let what = format!("rank {} of {} is none; ranks count from 0", self.rank, self.ranks);
            return Err(DataError::Options { what }.into());
        }
        Ok(order.batches()?)
    }

    /// The first batch of the first epoch.
    ///
    /// # Errors
    /// As [`batches`](Self::batches).
    pub fn beginning(&self) -> Result<Position> {
        let order = self.order();
        Ok(Position::new(order, 0, 0, self.batches_of(&order)?))
    }
}

impl<S: Send + 'static, C: Collate<S> + 'static> Loader<S, C>
where
    C::Batch: 'static,
{
    /// The batches of an epoch. Threads begin at once.
    ///
    /// # Errors
    /// As [`batches`](Self::batches); [`DataError::Thread`].
    pub fn epoch(&self, epoch: u64) -> Result<Batches<S, C::Batch>> {
        self.from(self.order(), epoch, 0)
    }

    /// The rest of an epoch from a position on: the batches that would have come next.
    ///
    /// # Errors
    /// [`DataError::OtherOrder`] if the position is of a loader that had its samples in another order; as
    /// [`epoch`](Self::epoch).
    pub fn resume(&self, position: &Position) -> Result<Batches<S, C::Batch>> {
        let order = self.order();
        let batches = self.batches_of(&order)?;
        if position.order() != order {
            return Err(DataError::OtherOrder { position: position.order(), loader: order }.into());
        }
        match usize::try_from(position.batch()) {
            Ok(batch) if batch < batches => self.from(order, position.epoch(), batch),
            _ => Err(DataError::NoSuchBatch { batch: position.batch(), batches: batches as u64 }.into()),
        }
    }

    fn from(&self, order: Order, epoch: u64, first: usize) -> Result<Batches<S, C::Batch>> {
        let batches = self.batches_of(&order)?;
        let work = Work {
            samples: self.samples.clone(),
            collate: self.collate.clone(),
            order,
            rank: self.rank,
            epoch,
            batches,
            permutation: order.permutation(epoch),
        };
        Ok(Batches::start(work, first, self.threads, self.prefetch)?)
    }
}

impl<S: Send + 'static, C> std::fmt::Debug for Loader<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader")
            .field("order", &self.order())
            .field("rank", &self.rank)
            .field("threads", &self.threads)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}
