//! What a context may cost and how much of it is kept.

/// How large a context may be and what [`compact_messages`](super::compact_messages) keeps of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextConfig {
    /// The model's window in tokens, system prompt included.
    pub max_context_tokens: u64,
    /// Tokens of the system prompt.
    pub system_prompt_tokens: u64,
    /// Messages kept at the start when the middle is dropped.
    pub keep_first: usize,
    /// Messages kept in full at the end.
    pub keep_recent: usize,
    /// Lines that a tool output may have before its middle is cut.
    pub tool_output_max_lines: usize,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            max_context_tokens: 128_000,
            system_prompt_tokens: 0,
            keep_first: 2,
            keep_recent: 10,
            tool_output_max_lines: 50,
        }
    }
}
