//! The formats that this version reads, and those that a build leaves out.

use super::{Importer, SessionLines};

/// Every format but loopstore's own lines, with the cargo feature that it is part of.
const FORMATS: [(&str, &str); 21] = [
    ("phi-core", "phi-core"),
    ("atif", "atif"),
    ("qwen-code", "qwen-code"),
    ("claude-code", "claude-code"),
    ("opencode", "opencode"),
    ("swe-agent", "swe-agent"),
    ("mini-swe-agent", "mini-swe-agent"),
    ("openhands", "openhands"),
    ("openai-agents", "openai-agents"),
    ("codex", "codex"),
    ("copilot-cli", "copilot-cli"),
    ("gemini-cli", "gemini-cli"),
    ("goose", "goose"),
    ("pi", "pi"),
    ("adk", "adk"),
    ("aider", "aider"),
    ("cline", "cline"),
    ("roo-code", "cline"),
    ("anthropic", "provider-forms"),
    ("responses", "provider-forms"),
    ("openai-chat", "openai-chat"),
];

/// Returns the importers in the order in which they are tried: the first importer that recognises a file reads the
/// file. The forms of loopstore are first, since their sessions may contain records of any other format.
///
/// ```
/// use loopstore_transcripts::importers;
///
/// let formats: Vec<&str> = importers().iter().map(|importer| importer.format()).collect();
/// assert!(formats.contains(&"claude-code"));
/// ```
pub fn importers() -> &'static [&'static dyn Importer] {
    &[
        &SessionLines,
        #[cfg(feature = "phi-core")]
        &super::PhiCore,
        #[cfg(feature = "atif")]
        &super::Atif,
        #[cfg(feature = "qwen-code")]
        &super::QwenCode,
        #[cfg(feature = "claude-code")]
        &super::ClaudeCode,
        #[cfg(feature = "opencode")]
        &super::OpenCode,
        #[cfg(feature = "swe-agent")]
        &super::SweAgent,
        #[cfg(feature = "mini-swe-agent")]
        &super::MiniSweAgent,
        #[cfg(feature = "openhands")]
        &super::OpenHands,
        #[cfg(feature = "openai-agents")]
        &super::OpenAiAgents,
        #[cfg(feature = "codex")]
        &super::Codex,
        #[cfg(feature = "copilot-cli")]
        &super::CopilotCli,
        #[cfg(feature = "gemini-cli")]
        &super::GeminiCli,
        #[cfg(feature = "goose")]
        &super::Goose,
        #[cfg(feature = "pi")]
        &super::Pi,
        #[cfg(feature = "adk")]
        &super::Adk,
        #[cfg(feature = "aider")]
        &super::Aider,
        #[cfg(feature = "cline")]
        &super::Cline,
        #[cfg(feature = "cline")]
        &super::RooCode,
        #[cfg(feature = "provider-forms")]
        &super::ProviderForm::ANTHROPIC,
        #[cfg(feature = "provider-forms")]
        &super::ProviderForm::RESPONSES,
        #[cfg(feature = "openai-chat")]
        &super::OpenAiChat,
    ]
}

/// Returns the feature that a format is part of, if this build leaves it out.
pub(super) fn missing_feature(format: &str) -> Option<&'static str> {
    let known = FORMATS.iter().find(|(name, _)| *name == format);
    known
        .filter(|of| is_left_out(of))
        .map(|(_, feature)| *feature)
}

/// Returns the names of the formats that this build leaves out.
pub(super) fn left_out() -> Vec<&'static str> {
    let left_out = FORMATS.iter().filter(|of| is_left_out(of));
    left_out.map(|(format, _)| *format).collect()
}

fn is_left_out((format, _): &(&str, &str)) -> bool {
    importers().iter().all(|one| one.format() != *format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read_or_named_as_left_out() {
        let read = importers().iter().map(|one| one.format());
        let mut all: Vec<&str> = read
            .chain(left_out())
            .filter(|name| *name != SessionLines.format())
            .collect();
        let mut named: Vec<&str> = FORMATS.iter().map(|(format, _)| *format).collect();
        all.sort_unstable();
        named.sort_unstable();
        assert_eq!(all, named);
    }

    #[test]
    fn a_build_with_all_formats_leaves_none_out() {
        let is_whole = cfg!(feature = "default");
        assert!(!is_whole || left_out().is_empty(), "{:?}", left_out());
        assert_eq!(missing_feature("codex").is_some(), !cfg!(feature = "codex"));
        assert_eq!(
            missing_feature("roo-code"),
            (!cfg!(feature = "cline")).then_some("cline")
        );
        assert_eq!(missing_feature("no-format"), None);
    }
}
