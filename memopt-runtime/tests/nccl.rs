//! Groups over NCCL where there is no GPU or no library: an error on all ranks, and the host group goes on.
//! With a GPU and NCCL it is a group of one.
#![allow(clippy::unwrap_used, clippy::panic)]

use memopt_runtime::dist::{Communicator, GroupError, Nccl, Reduce, Single, Threads, Values};
use memopt_runtime::Error;
use std::sync::Arc;

#[test]
fn what_a_rank_lacks_is_an_error_on_all_ranks_and_the_host_group_goes_on() {
    std::thread::scope(|scope| {
        for rank in Threads::group(2) {
            scope.spawn(move || {
                let host: Arc<dyn Communicator> = Arc::new(rank);
                // No machine has so many devices.
                match Nccl::new(host.clone(), 1_000_000).err() {
                    Some(Error::Group(GroupError::Refused { rank: 0, what })) => {
                        assert!(what.contains("device 1000000: "), "{what}");
                    }
                    other => panic!("{other:?}"),
                }
                host.barrier().unwrap();
            });
        }
    });
}

#[test]
fn a_group_of_one_reduces_or_says_what_is_missing() {
    match Nccl::new(Arc::new(Single::new()), 0) {
        Ok(nccl) => {
            let mut values = [1f32, 2.];
            nccl.all_reduce(Values::F32(&mut values), Reduce::Sum).unwrap();
            let mut bytes = vec![1, 2, 3];
            nccl.broadcast(0, &mut bytes).unwrap();
            assert_eq!((values, bytes), ([1., 2.], vec![1, 2, 3]));
        }
        Err(Error::Group(GroupError::Refused { rank: 0, what })) => {
            assert!(what.contains("cannot be used"), "{what}");
        }
        Err(other) => panic!("{other}"),
    }
}
