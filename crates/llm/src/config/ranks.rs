//! How a model is shared by the ranks of a group of devices.

use elinvar::{Error, Result};

use super::Config;

impl Config {
    /// How many ranks that follow each other have the same key and value heads: more than one where there are more ranks than heads.
    pub(crate) fn key_sharers(&self, ranks: usize) -> usize {
        (ranks / self.kv_heads.max(1)).max(1)
    }

    /// Whether each rank of a group can have as much of the model as the others.
    ///
    /// # Errors
    /// Something that cannot be shared by so many; the message says what, and how many ranks can.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        let Some(what) = self.unshared(ranks) else { return Ok(()) };
        let fit: Vec<_> = (1..ranks).filter(|ranks| self.unshared(*ranks).is_none()).map(|ranks| ranks.to_string()).collect();
        Err(Error::invalid_argument(format!("{what} cannot be shared by {ranks} devices: use {}", fit.join(" or "))))
    }

    /// What so many ranks cannot share.
    fn unshared(&self, ranks: usize) -> Option<String> {
        let shared = [
            ("query heads", self.heads),
            ("elements of a token", self.hidden_size),
            ("inner elements of the feed-forward network", self.intermediate_size),
            ("key and value heads", self.kv_heads * self.key_sharers(ranks)),
        ];
        let (what, count) = shared.into_iter().find(|(_, count)| ranks == 0 || !count.is_multiple_of(ranks))?;
        Some(format!("{count} {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_heads_are_shared_where_there_are_more_ranks_and_other_parts_are_not() {
        let config = Config::llama3(1, [48, 96], [6, 2], 64);
        assert_eq!([1, 2, 6].map(|ranks| config.key_sharers(ranks)), [1, 1, 3]);
        [1, 2, 6].iter().for_each(|&ranks| config.check_ranks(ranks).unwrap());
        assert_eq!(config.check_ranks(4).unwrap_err().to_string(), "6 query heads cannot be shared by 4 devices: use 1 or 2");
        assert_eq!(config.check_ranks(3).unwrap_err().to_string(), "2 key and value heads cannot be shared by 3 devices: use 1 or 2");
        assert!(config.check_ranks(0).is_err());
    }
}
