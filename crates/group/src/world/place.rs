use std::{env, time::Duration};

use elinvar_core::{Error, Result};

/// How long processes wait for each other at the start.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a process may say nothing.
const SILENCE: Duration = Duration::from_secs(8);

/// The place of a process in a job of several, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub rank: usize,
    /// Processes of the job.
    pub world_size: usize,
    /// Its number on its host, from 0.
    pub local_rank: usize,
    /// Processes on its host.
    pub local_world_size: usize,
    /// The name or number of the host of process 0, as all reach it.
    pub address: String,
    /// The port on which process 0 listens.
    pub port: u16,
    /// How long the processes wait for each other at the start.
    pub patience: Duration,
    /// After so long without a word from a process it counts as lost; each speaks eight times as often.
    pub silence: Duration,
}

impl Place {
    /// As `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` say, which `torchrun` sets; none where there is one process.
    ///
    /// `torchrun` itself may listen on `MASTER_PORT`, and says so in `TORCHELASTIC_USE_AGENT_STORE`: then the processes meet on the next port.
    ///
    /// # Errors
    /// A variable that is missing beside `WORLD_SIZE`, or is not a number, or is none of its world's.
    pub fn from_environment() -> Result<Option<Self>> {
        Self::read(|name| env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &str, default: Option<usize>| match (variable(name), default) {
            (Some(text), _) => text.trim().parse().map_err(|_| Error::invalid_argument(format!("{name} is '{text}': a whole number expected"))),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(missing(name)),
        };
        if variable("WORLD_SIZE").is_none() {
            return Ok(None);
        }
        let world_size = number("WORLD_SIZE", None)?;
        if world_size == 1 {
            return Ok(None);
        }
        let place = Self {
            rank: number("RANK", None)?,
            world_size,
            local_rank: number("LOCAL_RANK", Some(0))?,
            local_world_size: number("LOCAL_WORLD_SIZE", Some(1))?,
            address: variable("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR"))?,
            port: {
                let (port, has_store) = (number("MASTER_PORT", None)?, variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"));
                let port = u16::try_from(port).ok().and_then(|port| port.checked_add(u16::from(has_store)));
                port.ok_or_else(|| Error::invalid_argument("MASTER_PORT is too large for a port: set another one on all processes"))?
            },
            patience: PATIENCE,
            silence: SILENCE,
        };
        for (name, rank, size, of) in
            [("RANK", place.rank, world_size, "WORLD_SIZE"), ("LOCAL_RANK", place.local_rank, place.local_world_size, "LOCAL_WORLD_SIZE")]
        {
            if rank >= size {
                return Err(Error::invalid_argument(format!("{name} is {rank} and {of} is {size}: ranks count from 0 to {of} - 1")));
            }
        }
        Ok(Some(place))
    }
}

fn missing(name: &str) -> Error {
    Error::invalid_argument(format!("WORLD_SIZE is set, and {name} is not: torchrun sets both; for one process unset WORLD_SIZE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHRUN: [(&str, &str); 6] =
        [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2"), ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];

    /// What is read with this variable set to something else, or not at all.
    fn with(name: &str, value: Option<&str>) -> Result<Option<Place>> {
        let known = |wanted: &str| TORCHRUN.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        Place::read(|wanted| if wanted == name { value } else { known(wanted) }.map(str::to_owned))
    }

    #[test]
    fn the_variables_of_torchrun_are_read() {
        let place = with("", None).unwrap().unwrap();
        assert_eq!((place.rank, place.world_size, place.local_rank, place.local_world_size), (3, 4, 1, 2));
        assert_eq!((&place.address[..], place.port), ("10.0.0.1", 29500));
        let beside_a_store = with("TORCHELASTIC_USE_AGENT_STORE", Some("True")).unwrap().unwrap();
        assert_eq!(beside_a_store.port, 29501);
        for alone in [None, Some("1")] {
            assert_eq!(with("WORLD_SIZE", alone).unwrap(), None);
        }
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (name, value, wanted) in [
            ("RANK", None, "WORLD_SIZE is set, and RANK is not"),
            ("MASTER_ADDR", None, "MASTER_ADDR is not"),
            ("RANK", Some("first"), "RANK is 'first': a whole number expected"),
            ("RANK", Some("4"), "RANK is 4 and WORLD_SIZE is 4"),
            ("LOCAL_RANK", Some("2"), "LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2"),
            ("MASTER_PORT", Some("65536"), "MASTER_PORT is too large"),
        ] {
            let error = with(name, value).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
