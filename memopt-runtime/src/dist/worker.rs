//! A thread that owns a wire of a library whose handles must stay in one thread.

use super::error::GroupError;
use std::sync::mpsc::{channel, sync_channel, Sender};
use std::thread::JoinHandle;

type Job<W> = Box<dyn FnOnce(&W) + Send>;

/// The thread, and the way to it. Any thread may give it jobs; they run one after the other.
#[derive(Debug)]
pub(super) struct Worker<W> {
    jobs: Sender<Job<W>>,
    thread: JoinHandle<()>,
    backend: &'static str,
}

impl<W: 'static> Worker<W> {
    /// Starts the thread; `make` runs in it, and the wire is dropped in it.
    ///
    /// # Errors
    /// Those of `make`, and if no thread can be started.
    pub(super) fn start(
        backend: &'static str,
        make: impl FnOnce() -> Result<W, GroupError> + Send + 'static,
    ) -> Result<Self, GroupError> {
        let unavailable = |what: &str| GroupError::Unavailable { backend, what: what.to_owned() };
        let (jobs, queue) = channel::<Job<W>>();
        let (made, is_made) = sync_channel(1);
        let serve = move || {
            let wire = match make() {
                Ok(wire) => wire,
                Err(error) => return drop(made.send(Err(error))),
            };
            // Nobody waits any more only if the starting thread is gone; the queue is closed then.
            let _ = made.send(Ok(()));
            queue.into_iter().for_each(|job| job(&wire));
        };
        let thread = std::thread::Builder::new()
            .name(format!("memopt {backend}"))
            .spawn(serve)
            .map_err(|error| unavailable(&format!("no thread can be started: {error}")))?;
        is_made.recv().unwrap_or_else(|_| Err(unavailable("its thread panicked when it started")))?;
        Ok(Self { jobs, thread, backend })
    }

    /// Runs a job and waits for what comes of it.
    pub(super) fn run<R: Send + 'static>(
        &self,
        rank: usize,
        job: impl FnOnce(&W) -> Result<R, GroupError> + Send + 'static,
    ) -> Result<R, GroupError> {
        let (reply, answer) = sync_channel(1);
        let sent = self.jobs.send(Box::new(move |wire| drop(reply.send(job(wire)))));
        let ended =
            || GroupError::Backend { backend: self.backend, rank, what: "its thread has ended".to_owned() };
        sent.map_err(|_| ended())?;
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Runs a job without an answer behind those that are there; false if it was not done in time.
    #[cfg(feature = "mpi")]
    pub(super) fn run_within(
        &self,
        time: std::time::Duration,
        job: impl FnOnce(&W) + Send + 'static,
    ) -> bool {
        let (reply, answer) = sync_channel::<()>(1);
        let sent = self.jobs.send(Box::new(move |wire| {
            job(wire);
            drop(reply);
        }));
        sent.is_ok() && answer.recv_timeout(time) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    }

    /// Ends the thread after the jobs that are there, and waits for it.
    pub(super) fn finish(self) {
        drop(self.jobs);
        // A panic in it has been printed, and its callers were given errors.
        let _ = self.thread.join();
    }
}
