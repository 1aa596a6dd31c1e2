//! The formats that this version reads.

use super::{
    Adk, Aider, ClaudeCode, Cline, Codex, CopilotCli, GeminiCli, Goose, Importer, MiniSweAgent,
    OpenAiAgents, OpenAiChat, OpenCode, OpenHands, PhiCore, Pi, ProviderForm, QwenCode, RooCode,
    StoredLines, SweAgent,
};

/// Returns the importers in the order in which they are asked; the first that knows a file reads
/// it. loopstore's own forms come first: a session of them may hold records of any other.
///
/// ```
/// use loopstore_transcripts::importers;
///
/// let formats: Vec<&str> = importers().iter().map(|importer| importer.format()).collect();
/// assert!(formats.contains(&"claude-code"));
/// ```
pub fn importers() -> &'static [&'static dyn Importer] {
    &[
        &StoredLines,
        &PhiCore,
        &QwenCode,
        &ClaudeCode,
        &OpenCode,
        &SweAgent,
        &MiniSweAgent,
        &OpenHands,
        &OpenAiAgents,
        &Codex,
        &CopilotCli,
        &GeminiCli,
        &Goose,
        &Pi,
        &Adk,
        &Aider,
        &Cline,
        &RooCode,
        &ProviderForm::ANTHROPIC,
        &ProviderForm::RESPONSES,
        &OpenAiChat,
    ]
}
