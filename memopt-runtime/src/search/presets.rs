//! The presets people know: levels, profiles, preferences, budgets.

use super::words::words;

words! {
    /// How far a search goes; each level includes the ones before.
    Level, "level" {
        /// Nothing is checkpointed.
        Zero = "0",
        /// Every chosen target is a segment that is computed again; its input is compressed where that is exact.
        One = "1",
        /// The segment at the peak is split in space, as long as the peak falls.
        Two = "2",
        /// The segment at the peak is run in time or channel chunks, as long as the peak falls.
        Three = "3",
        /// Segments are restored, the dearest first, as long as the peak does not rise.
        Four = "4",
    }
}

words! {
    /// What matters more; it fills whatever is not said.
    Prefer, "preference" {
        /// Half of the targets, profile `safe`.
        Speed = "speed",
        /// Three quarters of the targets, profile `balanced`.
        Balanced = "balanced",
        /// All targets, profile `memory`.
        Memory = "memory",
    }
}

words! {
    /// How much a search tries.
    Profile, "profile" {
        /// Level 1.
        Safe = "safe",
        /// Level 2: one round with one candidate.
        Balanced = "balanced",
        /// Level 3: two rounds with two candidates each.
        Memory = "memory",
        /// Level 4, until nothing helps.
        Exhaustive = "exhaustive",
    }
}

words! {
    /// Which share of the targets become segments, the largest inputs first.
    CheckpointBudget, "checkpoint budget" {
        /// Half of them.
        Speed = "speed",
        /// Three quarters.
        Balanced = "balanced",
        /// All.
        Memory = "memory",
    }
}

impl Level {
    /// The level of this number.
    ///
    /// # Errors
    /// If there is none: levels are 0 to 4.
    pub fn of(number: usize) -> crate::Result<Self> {
        number.to_string().parse()
    }
}

impl Prefer {
    /// The profile that it stands for.
    pub fn profile(self) -> Profile {
        match self {
            Prefer::Speed => Profile::Safe,
            Prefer::Balanced => Profile::Balanced,
            Prefer::Memory => Profile::Memory,
        }
    }

    /// The budget that it stands for.
    pub fn budget(self) -> CheckpointBudget {
        match self {
            Prefer::Speed => CheckpointBudget::Speed,
            Prefer::Balanced => CheckpointBudget::Balanced,
            Prefer::Memory => CheckpointBudget::Memory,
        }
    }
}

impl Profile {
    /// Its level.
    pub fn level(self) -> Level {
        match self {
            Profile::Safe => Level::One,
            Profile::Balanced => Level::Two,
            Profile::Memory => Level::Three,
            Profile::Exhaustive => Level::Four,
        }
    }

    /// Rounds of splits; `None`: until nothing helps.
    pub fn rounds(self) -> Option<usize> {
        match self {
            Profile::Safe => Some(0),
            Profile::Balanced => Some(1),
            Profile::Memory => Some(2),
            Profile::Exhaustive => None,
        }
    }

    /// Segments that a round tries; `None`: all.
    pub fn candidates(self) -> Option<usize> {
        self.rounds()
    }

    /// Whether the search may go beyond a first look.
    pub fn allows_expensive_profiling(self) -> bool {
        matches!(self, Profile::Memory | Profile::Exhaustive)
    }
}

impl CheckpointBudget {
    /// The share of the targets.
    pub fn share(self) -> f64 {
        match self {
            CheckpointBudget::Speed => 0.5,
            CheckpointBudget::Balanced => 0.75,
            CheckpointBudget::Memory => 1.,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_and_unknown_ones_list_the_others() {
        for &profile in Profile::ALL {
            assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
            let json = serde_json::to_string(&profile).unwrap();
            assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
        }
        let error = "fast".parse::<Prefer>().unwrap_err().to_string();
        assert!(error.contains("speed, balanced, memory"), "{error}");
        let error = Level::of(5).unwrap_err().to_string();
        assert!(error.contains("0, 1, 2, 3, 4"), "{error}");
        assert!(serde_json::from_str::<CheckpointBudget>("\"all\"").is_err());
    }
}
