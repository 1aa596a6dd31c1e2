//! The extension of pi and the plugin of OpenCode: files of loopstore that call the hook.

use super::setup::Setup;

/// The line that identifies a file of loopstore.
pub const MARK: &str = "// Written by `loopstore install`";
/// The placeholder for the words that call the hook.
const WORDS: &str = "WORDS;";

/// Returns the extension of pi.
pub fn pi(setup: &Setup) -> String {
    with_words(include_str!("pi.ts"), setup)
}

/// Returns the plugin of OpenCode.
pub fn opencode(setup: &Setup) -> String {
    with_words(include_str!("opencode.js"), setup)
}

fn with_words(script: &str, setup: &Setup) -> String {
    let mut words = setup.hook("");
    words.pop();
    let words: Vec<serde_json::Value> = words.into_iter().map(Into::into).collect();
    let words = serde_json::Value::from(words).to_string();
    script.replacen(WORDS, &format!("{words};"), 1)
}
