//! The contexts that readers answer from.

use loopstore::compaction::StrategyError;
use loopstore::model::AgentMessage;
use loopstore::tokens::TokenCounter;

use super::super::{EvalStrategy, History, shuffled};

/// A context of an exam.
#[derive(Clone, Debug, PartialEq)]
pub struct ExamCandidate {
    /// The source of the context: a strategy, or `recorded` for the transcript's own compaction.
    pub name: String,
    /// The messages of the context.
    pub messages: Vec<AgentMessage>,
    /// The sum of the messages' tokens.
    pub tokens: u64,
}

impl ExamCandidate {
    /// The name of the transcript's own compaction.
    pub const RECORDED: &str = "recorded";
    /// The name of the recorded compaction with the handback text of loopstore.
    pub const HANDED_BACK: &str = "with-handback";

    /// Compacts a whole history with each strategy; no context has more than `size` tokens.
    ///
    /// # Errors
    /// If a strategy fails or exceeds the size.
    ///
    /// # Examples
    /// ```
    /// use loopstore_eval::{History, exam::ExamCandidate, strategy};
    /// use loopstore::*;
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
    /// chat.append([Message::user("How is the weather?")])?;
    /// chat.append((0..40).map(report))?;
    /// let history = History::load(store.database(), chat.id())?;
    /// let strategies: Vec<_> = ["digest", "truncate"].into_iter().filter_map(strategy).collect();
    /// let all = ExamCandidate::all(&history, 500, &strategies, store.database().counter())?;
    /// assert!(all.iter().all(|candidate| candidate.tokens <= 500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn all(
        history: &History,
        size: u64,
        strategies: &[&dyn EvalStrategy],
        counter: &dyn TokenCounter,
    ) -> Result<Vec<Self>, StrategyError> {
        let candidate = |strategy: &&dyn EvalStrategy| {
            let mut budget = size;
            loop {
                let messages = strategy.compact_chain(history, budget, counter)?;
                let candidate = Self::new(strategy.name(), messages, counter);
                // Some strategies count only the texts against their budget.
                let excess = candidate.tokens.saturating_sub(size);
                match budget.checked_sub(excess) {
                    _ if excess == 0 => return Ok(candidate),
                    Some(less) => budget = less,
                    None => {
                        let (name, tokens) = (strategy.name(), candidate.tokens);
                        let why = format!("{name} needs {tokens} tokens; {size} are allowed");
                        return Err(StrategyError::Failed(why));
                    }
                }
            }
        };
        strategies.iter().map(candidate).collect()
    }

    /// Returns a context of these messages.
    pub fn new(
        name: impl Into<String>,
        messages: Vec<AgentMessage>,
        counter: &dyn TokenCounter,
    ) -> Self {
        Self {
            name: name.into(),
            tokens: messages.iter().map(|m| counter.message_tokens(m)).sum(),
            messages,
        }
    }
}

/// Returns a letter for each name. The assignment depends on the seed and the exam, so that a letter does not reveal
/// the name.
pub fn letters(names: &[&str], exam: &str, seed: u64) -> Vec<String> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|at| shuffled(seed, &[exam, names[*at]]));
    let mut letters = vec![String::new(); names.len()];
    for (place, at) in order.into_iter().enumerate() {
        letters[at] = letter(place);
    }
    letters
}

/// `A` to `Z`, then `AA`.
fn letter(place: usize) -> String {
    let last = char::from(b'A' + u8::try_from(place % 26).unwrap_or_default());
    match place / 26 {
        0 => last.to_string(),
        more => format!("{}{last}", letter(more - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_each_given_once_and_follow_the_seed() {
        let names: Vec<String> = (0..30).map(|at| format!("strategy {at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = letters(&names, "exam", 1);
        assert_eq!(given, letters(&names, "exam", 1));
        assert_ne!(given, letters(&names, "exam", 2));
        assert_ne!(given, letters(&names, "other", 1));
        let mut sorted = given;
        sorted.sort_by_key(|letter| (letter.len(), letter.clone()));
        assert_eq!((&*sorted[0], &*sorted[25], &*sorted[29]), ("A", "Z", "AD"));
        sorted.dedup();
        assert_eq!(sorted.len(), 30);
    }
}
