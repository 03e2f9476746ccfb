//! How long masks of grammars take: `cargo run --release -p elinvar-server --example masks -- MODEL…`
//!
//! For each model, of which nothing but the tokenizer is read, it writes answers to generated JSON schemas, token by token, of random tokens that are allowed.
//! Each answer that ends must be JSON. Times are the thread's on a processor: a busy machine makes them little longer.

use std::time::Duration;

use cpu_time::ThreadTime;
use elinvar::{Error, Result};
use elinvar_llm::{ModelFiles, TokenMask, Tokenizer};
use elinvar_server::{Grammar, Grammars};
use serde_json::{Value, json};

const SCHEMAS: u64 = 200;
const MOST_TOKENS: usize = 96;

/// Random numbers (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % count.max(1) as u64) as usize
    }

    fn schema(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => json!({"type": "integer", "minimum": 0, "maximum": self.below(10_000)}),
            1 => json!({"type": "integer", "exclusiveMinimum": 0, "maximum": 9_999, "multipleOf": 5}),
            2 => json!({"type": "boolean"}),
            3 => json!({"type": "string", "maxLength": 4 + self.below(20)}),
            4 => json!({"type": "string", "pattern": "^[0-9]{4}-[01][0-9]-[0-3][0-9]$"}),
            5 => json!({"enum": ["red", "green", "blue", 1, null]}),
            6 => json!({"type": "array", "items": self.schema(depth - 1), "minItems": 1, "maxItems": 1 + self.below(3)}),
            _ => {
                let properties: Vec<_> = (0..1 + self.below(4)).map(|index| (format!("field{index}"), self.schema(depth - 1))).collect();
                let names: Vec<_> = properties.iter().map(|(name, _)| name.clone()).collect();
                let properties: serde_json::Map<_, _> = properties.into_iter().collect();
                json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
            }
        }
    }
}

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        measure(&path)?;
    }
    Ok(())
}

fn measure(path: &str) -> Result<()> {
    let files = ModelFiles::open(path)?;
    let tokenizer = Tokenizer::open(&files)?;
    let vocabulary = tokenizer.vocab_size();
    let end = tokenizer.eos().and_then(|end| tokenizer.id(end)).ok_or_else(|| Error::unsupported(format!("{path}: no end token")))?;
    let (grammars, mut draw) = (Grammars::default(), Draw(1));
    let start = ThreadTime::now();
    drop(grammars.mask(&Grammar::Schema(json!({})), &tokenizer, vocabulary, &[end])?);
    let prepared = start.elapsed();
    let (mut begun, mut times, mut ended) = (Vec::new(), Vec::new(), 0);
    for _ in 0..SCHEMAS {
        let schema = draw.schema(3);
        let start = ThreadTime::now();
        let mut mask = grammars.mask(&Grammar::Schema(schema.clone()), &tokenizer, vocabulary, &[end])?;
        begun.push(start.elapsed());
        let mut bytes = Vec::new();
        for _ in 0..MOST_TOKENS {
            let mut words = vec![0; vocabulary.div_ceil(32)];
            let start = ThreadTime::now();
            mask.allow(&mut words)?;
            times.push(start.elapsed());
            let allowed: Vec<_> = (0..vocabulary as u32).filter(|token| words[*token as usize / 32] >> (token % 32) & 1 == 1).collect();
            let token = allowed[draw.below(allowed.len())];
            if token == end {
                serde_json::from_slice::<Value>(&bytes).map_err(|e| Error::internal(format!("{schema}: no JSON: {e}")))?;
                ended += 1;
                break;
            }
            bytes.extend(tokenizer.token_bytes(token));
            mask.accept(token)?;
        }
    }
    println!(
        "{path}: {vocabulary} tokens, prepared in {prepared:.0?}; {SCHEMAS} schemas, p50 {:.0?}, p99 {:.0?}; {} masks, p50 {:.1?}, p99 {:.1?}, most {:.1?}; {ended} answers ended",
        percentile(&mut begun, 50),
        percentile(&mut begun, 99),
        times.len(),
        percentile(&mut times, 50),
        percentile(&mut times, 99),
        percentile(&mut times, 100),
    );
    Ok(())
}

/// By the nearest rank.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent).div_ceil(100).max(1) - 1]
}
