//! What memory served models take, and what fits beside them.

use elinvar::format_bytes;
use elinvar_llm::{Config, EngineOptions, MemoryEstimate, Weights};

/// Tokens of a page.
pub(crate) const PAGE: usize = 32;

/// What a model with its engine takes.
#[derive(Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) estimate: MemoryEstimate,
    /// Bytes of a page of the cache.
    pub(crate) page: u64,
}

impl Footprint {
    /// Of each rank of a group of devices.
    pub(crate) fn new(config: &Config, weights: &Weights, options: &EngineOptions, ranks: usize) -> Self {
        let page = MemoryEstimate::of(config, weights, PAGE, options.cache, 1).of_rank(config, ranks).cache;
        Self { estimate: MemoryEstimate::of_engine(config, weights, options).of_rank(config, ranks), page }
    }

    /// With that of its draft model, whose cache has as many pages.
    pub(crate) fn with(self, draft: Self) -> Self {
        Self { estimate: self.estimate.with(draft.estimate), page: self.page.saturating_add(draft.page) }
    }
}

/// A model to be served.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) options: EngineOptions,
    pub(crate) footprint: Footprint,
}

impl Plan {
    fn pages(&self) -> u64 {
        (self.options.cache_tokens / PAGE) as u64
    }

    fn cache(&self) -> u64 {
        self.pages().saturating_mul(self.footprint.page)
    }

    /// Intermediate results, logits, and slots of the cache that fill steps up.
    fn steps(&self) -> u64 {
        let MemoryEstimate { weights, .. } = self.footprint.estimate;
        self.footprint.estimate.total().saturating_sub(weights).saturating_sub(self.cache())
    }

    /// How many requests of some lengths have room in so many pages.
    fn requests(&self, pages: u64) -> String {
        let context = self.options.context;
        let lengths = [512, 2048, 8192, 32_768].into_iter().filter(|&length| length < context).chain([context]);
        let counts = lengths.map(|length| format!("{} of {length} tokens", pages / length.div_ceil(PAGE).max(1) as u64));
        counts.collect::<Vec<_>>().join(", ")
    }
}

/// What models take together, and encoders with the bytes of their weights.
pub(crate) fn total(models: &[Plan], encoders: &[(String, u64)]) -> u64 {
    models.iter().map(|model| model.footprint.estimate.total()).chain(encoders.iter().map(|(_, weights)| *weights)).fold(0, u64::saturating_add)
}

/// What is needed of a memory in words, as an error if it does not fit.
pub(crate) fn check(needed: u64, memory: u64) -> Result<String, String> {
    let (needed_shown, memory_shown) = (format_bytes(needed), format_bytes(memory));
    if needed <= memory {
        return Ok(format!("{needed_shown} of {memory_shown}"));
    }
    let lacking = format_bytes(needed - memory);
    Err(format!(
        "{needed_shown} do not fit into {memory_shown}: {lacking} less is needed, from a smaller model, --cache-tokens, --step-tokens, --context, or --cache-dtype q8_0"
    ))
}

/// The plan for models, and encoders with the bytes of their weights, in `memory` bytes, as lines.
pub(crate) fn lines(models: &[Plan], encoders: &[(String, u64)], memory: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let total = total(models, encoders);
    let caches = models.iter().map(Plan::cache).fold(0, u64::saturating_add);
    let share = memory.saturating_sub(total.saturating_sub(caches)) / models.len().max(1) as u64;
    for model in models {
        let Plan { name, options, footprint: Footprint { estimate, page } } = model;
        let most = share / page.max(&1);
        lines.push(format!("{name}, context of {} tokens", options.context));
        lines.push(format!("  weights   {}", format_bytes(estimate.weights)));
        lines.push(format!("  steps     up to {}, of up to {} tokens", format_bytes(model.steps()), options.step_tokens));
        lines.push(format!("  cache     {}, {} pages of {PAGE} tokens in {}", format_bytes(model.cache()), model.pages(), format_bytes(*page)));
        lines.push(format!("  requests  {}; {} are computed at a time", model.requests(model.pages()), options.running));
        if most > model.pages() {
            lines.push(format!("  at most   {}, with --cache-tokens {}", model.requests(most), most as usize * PAGE));
        }
    }
    lines.extend(encoders.iter().map(|(name, weights)| format!("{name}, an encoder: weights {}", format_bytes(*weights))));
    lines.push(check(total, memory).unwrap_or_else(|lacking| lacking));
    lines
}

/// Reads a number of bytes, such as `24GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1.0,
        "kib" => 1024.0,
        "mib" => 1024f64.powi(2),
        "gib" => 1024f64.powi(3),
        "tib" => 1024f64.powi(4),
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err("a number with KiB, MiB, GiB or TiB expected, such as 24GiB".to_owned()),
    };
    match digits.trim_end().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number * unit) as u64),
        Ok(_) | Err(_) => Err("a positive number of bytes expected, such as 24GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use elinvar::DType;

    use super::*;

    fn plan(name: &str) -> Plan {
        // A GiB of the cache is spare.
        let estimate = MemoryEstimate { weights: 15 << 30, cache: 5 << 30, activations: 1 << 30 };
        Plan { name: name.to_owned(), options: EngineOptions::new(4096, DType::F16), footprint: Footprint { estimate, page: 4 << 20 } }
    }

    #[test]
    fn a_plan_says_what_fits() {
        let expected = [
            "a, context of 4096 tokens",
            "  weights   15.0 GiB",
            "  steps     up to 2.0 GiB, of up to 512 tokens",
            "  cache     4.0 GiB, 1024 pages of 32 tokens in 4.0 MiB",
            "  requests  64 of 512 tokens, 16 of 2048 tokens, 8 of 4096 tokens; 64 are computed at a time",
            "  at most   256 of 512 tokens, 64 of 2048 tokens, 32 of 4096 tokens, with --cache-tokens 131072",
            "21.0 GiB of 33.0 GiB",
        ];
        assert_eq!(lines(&[plan("a")], &[], 33 << 30), expected);
        // Two models share what is left.
        let two = lines(&[plan("a"), plan("b")], &[], 50 << 30);
        assert!(two[5].ends_with("with --cache-tokens 65536") && two[11].ends_with("with --cache-tokens 65536"), "{two:?}");
        assert_eq!(two[12], "42.0 GiB of 50.0 GiB");
        // An encoder takes of it.
        let beside = lines(&[plan("a")], &[("e".to_owned(), 1 << 30)], 34 << 30);
        assert!(beside[5].ends_with("with --cache-tokens 131072"), "{beside:?}");
        assert_eq!(beside[6..], ["e, an encoder: weights 1.0 GiB", "22.0 GiB of 34.0 GiB"]);
        let none = lines(&[plan("a")], &[], 17 << 30);
        assert_eq!(none.len(), 6);
        assert!(none[5].starts_with("21.0 GiB do not fit into 17.0 GiB: 4.0 GiB less is needed"), "{none:?}");
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(["24GiB", "1.5 kib", "7", "80GB"].map(bytes), [Ok(24 << 30), Ok(1536), Ok(7), Ok(80_000_000_000)]);
        for bad in ["", "GiB", "-1GiB", "1e999", "nan", "3 apples", "24 Gi b"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
