//! Notes of a strategy on how it made a text, for the audit row of its run.

use crate::{Extra, Int, Usage};

/// The origin of a summary: the models that were called, and the fallback that was used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SummaryNotes {
    /// The sum of the tokens that all calls reported.
    pub usage: Option<Usage>,
    /// The models that answered, separated by commas.
    pub model: Option<String>,
    /// The number of calls of a summariser, failed ones included.
    pub calls: u32,
    /// The duration of all calls in milliseconds.
    pub duration_ms: u64,
    /// The strategy that made the text, if another one than the configured.
    pub fallback: Option<String>,
    /// The error that caused the fallback.
    pub error: Option<String>,
}

impl SummaryNotes {
    /// Adds later notes: figures are summed, names and errors listed once, the last fallback is kept.
    pub fn add(&mut self, later: &Self) {
        self.usage = match (self.usage.take(), &later.usage) {
            (Some(usage), Some(later)) => Some(sum(&usage, later)),
            (usage, later) => usage.or_else(|| later.clone()),
        };
        self.calls += later.calls;
        self.duration_ms += later.duration_ms;
        list(&mut self.model, later.model.as_deref(), ", ");
        list(&mut self.error, later.error.as_deref(), "; ");
        if later.fallback.is_some() {
            self.fallback.clone_from(&later.fallback);
        }
    }
}

fn list(words: &mut Option<String>, later: Option<&str>, between: &str) {
    let Some(later) = later else { return };
    match words {
        None => *words = Some(later.to_owned()),
        Some(words) if words.split(between).any(|word| word == later) => {}
        Some(words) => {
            words.push_str(between);
            words.push_str(later);
        }
    }
}

fn sum(a: &Usage, b: &Usage) -> Usage {
    let plus = |a: &Int, b: &Int| Int::from(a.get().saturating_add(b.get()));
    let maybe = |a: &Option<Int>, b: &Option<Int>| match (a, b) {
        (Some(a), Some(b)) => Some(plus(a, b)),
        (one, other) => one.clone().or_else(|| other.clone()),
    };
    Usage {
        input: plus(&a.input, &b.input),
        output: plus(&a.output, &b.output),
        reasoning: maybe(&a.reasoning, &b.reasoning),
        cache_read: maybe(&a.cache_read, &b.cache_read),
        cache_write: maybe(&a.cache_write, &b.cache_write),
        total_tokens: maybe(&a.total_tokens, &b.total_tokens),
        extra: Extra::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(input: i64, cached: Option<i64>, model: &str) -> SummaryNotes {
        SummaryNotes {
            usage: Some(Usage {
                input: input.into(),
                output: 1.into(),
                reasoning: None,
                cache_read: cached.map(Int::from),
                cache_write: None,
                total_tokens: None,
                extra: Extra::default(),
            }),
            model: Some(model.into()),
            calls: 1,
            duration_ms: 5,
            ..SummaryNotes::default()
        }
    }

    #[test]
    fn figures_are_summed_and_words_listed_once() {
        let mut all = SummaryNotes::default();
        for later in [
            notes(10, None, "a"),
            notes(5, Some(2), "b"),
            notes(1, None, "a"),
        ] {
            all.add(&later);
        }
        let usage = all.usage.unwrap();
        assert_eq!((usage.input.get(), usage.output.get()), (16, 3));
        assert_eq!(usage.cache_read, Some(2.into()));
        assert_eq!(all.model.as_deref(), Some("a, b"));
        assert_eq!((all.calls, all.duration_ms), (3, 15));
    }
}
