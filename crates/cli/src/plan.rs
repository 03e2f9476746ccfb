//! What memory served models take, and what fits beside them.

use elinvar::format_bytes;
use elinvar_llm::EngineOptions;

/// Tokens of a page.
pub(crate) const PAGE: usize = 32;

/// What a model with its engine takes, in bytes.
pub(crate) struct Footprint {
    pub(crate) name: String,
    pub(crate) options: EngineOptions,
    pub(crate) weights: u64,
    /// Intermediate results, logits, and slots of the cache that fill steps up.
    pub(crate) steps: u64,
    /// A page of the cache.
    pub(crate) page: u64,
}

impl Footprint {
    fn pages(&self) -> u64 {
        (self.options.cache_tokens / PAGE) as u64
    }

    fn cache(&self) -> u64 {
        self.pages().saturating_mul(self.page)
    }

    /// How many requests of some lengths have room in so many pages.
    fn requests(&self, pages: u64) -> String {
        let context = self.options.context;
        let lengths = [512, 2048, 8192, 32_768].into_iter().filter(|&length| length < context).chain([context]);
        let counts = lengths.map(|length| format!("{} of {length} tokens", pages / length.div_ceil(PAGE).max(1) as u64));
        counts.collect::<Vec<_>>().join(", ")
    }
}

/// The plan for models in `memory` bytes, as lines.
pub(crate) fn lines(models: &[Footprint], memory: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let sum = |of: fn(&Footprint) -> u64| models.iter().map(of).fold(0, u64::saturating_add);
    let fixed = sum(|model| model.weights).saturating_add(sum(|model| model.steps));
    let share = memory.saturating_sub(fixed) / models.len().max(1) as u64;
    for model in models {
        let Footprint { name, options, weights, steps, page } = model;
        let most = share / page.max(&1);
        lines.push(format!("{name}, context of {} tokens", options.context));
        lines.push(format!("  weights   {}", format_bytes(*weights)));
        lines.push(format!("  steps     {} at most, of up to {} tokens", format_bytes(*steps), options.step_tokens));
        lines.push(format!("  cache     {}, {} pages of {PAGE} tokens in {}", format_bytes(model.cache()), model.pages(), format_bytes(*page)));
        lines.push(format!("  requests  {}; {} are computed at a time", model.requests(model.pages()), options.running));
        if most > model.pages() {
            lines.push(format!("  at most   {}, with --cache-tokens {}", model.requests(most), most as usize * PAGE));
        }
    }
    let total = fixed.saturating_add(sum(Footprint::cache));
    let (total_shown, memory_shown) = (format_bytes(total), format_bytes(memory));
    lines.push(if total <= memory {
        format!("{total_shown} of {memory_shown}")
    } else {
        let lacking = format_bytes(total - memory);
        format!("{total_shown} do not fit into {memory_shown}: {lacking} less is needed, from a smaller model, --cache-tokens, --context, or --cache-dtype q8_0")
    });
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

    fn footprint(name: &str) -> Footprint {
        let options = EngineOptions::new(4096, DType::F16);
        Footprint { name: name.to_owned(), options, weights: 15 << 30, steps: 1 << 30, page: 4 << 20 }
    }

    #[test]
    fn a_plan_says_what_fits() {
        let expected = [
            "a, context of 4096 tokens",
            "  weights   15.0 GiB",
            "  steps     1.0 GiB at most, of up to 512 tokens",
            "  cache     4.0 GiB, 1024 pages of 32 tokens in 4.0 MiB",
            "  requests  64 of 512 tokens, 16 of 2048 tokens, 8 of 4096 tokens; 64 are computed at a time",
            "  at most   256 of 512 tokens, 64 of 2048 tokens, 32 of 4096 tokens, with --cache-tokens 131072",
            "20.0 GiB of 32.0 GiB",
        ];
        assert_eq!(lines(&[footprint("a")], 32 << 30), expected);
        // Two models share what is left.
        let two = lines(&[footprint("a"), footprint("b")], 48 << 30);
        assert!(two[5].ends_with("with --cache-tokens 65536") && two[11].ends_with("with --cache-tokens 65536"), "{two:?}");
        assert_eq!(two[12], "40.0 GiB of 48.0 GiB");
        let none = lines(&[footprint("a")], 16 << 30);
        assert_eq!(none.len(), 6);
        assert!(none[5].starts_with("20.0 GiB do not fit into 16.0 GiB: 4.0 GiB less is needed"), "{none:?}");
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(["24GiB", "1.5 kib", "7", "80GB"].map(bytes), [Ok(24 << 30), Ok(1536), Ok(7), Ok(80_000_000_000)]);
        for bad in ["", "GiB", "-1GiB", "1e999", "nan", "3 apples", "24 Gi b"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
