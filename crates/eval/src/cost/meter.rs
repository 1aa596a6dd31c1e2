//! The meter of one replay: what is read from the cache, what is written to it, and what compactions add.

use loopstore::model::AgentMessage;
use loopstore::tokens::TokenCounter;

use super::{CostResult, TokenPrices};

/// Counts the tokens of the calls of one session under one policy.
pub(super) struct Meter<'a> {
    prices: &'a TokenPrices,
    counter: &'a dyn TokenCounter,
    /// The context of the last call, which the provider's cache has.
    context: Vec<AgentMessage>,
    /// The tokens of each of its messages.
    sizes: Vec<u64>,
    /// Tokens of the messages that came since the last call.
    new: u64,
    result: CostResult,
}

impl<'a> Meter<'a> {
    pub(super) fn new(
        policy: &str,
        prices: &'a TokenPrices,
        counter: &'a dyn TokenCounter,
    ) -> Self {
        Self {
            prices,
            counter,
            context: Vec::new(),
            sizes: Vec::new(),
            new: 0,
            result: CostResult {
                policy: policy.to_owned(),
                ..CostResult::default()
            },
        }
    }

    /// Notes a message that the session got.
    pub(super) fn appended(&mut self, message: &AgentMessage, is_answer: bool) {
        let tokens = self.counter.message_tokens(message);
        self.new += tokens;
        if is_answer {
            self.result.output += tokens;
        }
    }

    /// Counts a call with a context. If a compaction was made before it, what is written beyond the new messages is the
    /// price of the compaction.
    pub(super) fn call(&mut self, context: &[AgentMessage], is_compacted: bool) {
        let shared = self.context.iter().zip(context);
        let shared = shared.take_while(|(before, now)| before == now).count();
        self.context.truncate(shared);
        self.sizes.truncate(shared);
        let cached: u64 = self.sizes.iter().sum();
        for message in &context[shared..] {
            self.sizes.push(self.counter.message_tokens(message));
            self.context.push(message.clone());
        }
        let written = self.tokens() - cached;
        self.result.calls += 1;
        self.result.cached += cached;
        self.result.written += written;
        if is_compacted {
            let rewritten = written.saturating_sub(self.new) as f64;
            self.result.compactions += 1;
            self.result.broken += rewritten * (self.prices.written - self.prices.cached);
        }
        self.new = 0;
    }

    /// Counts the call of a model that read the context and wrote so many tokens.
    pub(super) fn own_call(&mut self, written: u64) {
        self.result.own +=
            self.tokens() as f64 * self.prices.cached + written as f64 * self.prices.output;
    }

    /// Counts a file that is read again: the call that asks for it, one more reading of the context, and its content.
    pub(super) fn read_again(&mut self, call: u64, content: u64) {
        self.result.files += 1;
        self.result.again += call as f64 * self.prices.output
            + self.tokens() as f64 * self.prices.cached
            + content as f64 * self.prices.written;
    }

    /// Counts a call whose context exceeds the window.
    pub(super) fn over(&mut self) {
        self.result.over += 1;
    }

    /// Returns the tokens of the last context.
    pub(super) fn tokens(&self) -> u64 {
        self.sizes.iter().sum()
    }

    pub(super) fn result(mut self) -> CostResult {
        let result = &mut self.result;
        result.total = result.cached as f64 * self.prices.cached
            + result.written as f64 * self.prices.written
            + result.output as f64 * self.prices.output
            + result.own
            + result.again;
        self.result
    }
}
