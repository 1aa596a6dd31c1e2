//! Records that no model sees, stored as extension messages.
//!
//! The kind of the message is the type that the record names. Kinds that loopstore itself writes and reads are
//! reserved; this is the only place where a foreign record gets its kind.

use loopstore::model::{AgentMessage, Json};
use loopstore_model::extension_kinds;

/// The maximum length of a kind in characters; longer names are cut.
const MAX_KIND: usize = 100;

/// Returns an extension with a whole record. `kind` is the type that the record names; a reserved kind `k` becomes
/// `k-record`.
pub(super) fn extension(kind: Option<&str>, record: Json) -> AgentMessage {
    let kind: String = match kind.unwrap_or_default() {
        "" => "unknown".into(),
        kind if extension_kinds::is_reserved(kind) => format!("{kind}-record"),
        kind => kind.chars().take(MAX_KIND).collect(),
    };
    AgentMessage::extension(kind, record)
}

/// Returns an extension with a record of valid JSON, byte for byte.
pub(super) fn extension_of(kind: Option<&str>, record: &str) -> AgentMessage {
    extension(kind, Json::parse(record).unwrap_or_default())
}

/// Returns an extension with bytes that are not a record.
pub(super) fn unreadable(raw: &[u8]) -> AgentMessage {
    let read = std::str::from_utf8(raw).ok();
    let data = read.and_then(|text| Json::parse(text).ok());
    let data = data.filter(|data| !data.is_null());
    let lossy = || Json::string(&String::from_utf8_lossy(raw));
    AgentMessage::extension("unreadable", data.unwrap_or_else(lossy))
}

/// Returns an extension with a system or developer prompt.
///
/// # Errors
/// If the record nests too deeply.
pub(super) fn system_prompt(content: &Json) -> Result<AgentMessage, String> {
    let data = format!("{{\"content\":{}}}", content.as_str());
    let data = Json::parse(&data).map_err(super::fields::reason)?;
    Ok(AgentMessage::extension(extension_kinds::SYSTEM, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> String {
        match extension(Some(name), Json::null()) {
            AgentMessage::Extension(extension) => extension.kind,
            AgentMessage::Llm(_) => String::new(),
        }
    }

    #[test]
    fn reserved_kinds_are_not_for_foreign_records() {
        assert_eq!(kind("revised"), "revised-record");
        assert_eq!(kind("system"), "system-record");
        assert_eq!(kind("progress"), "progress");
        assert_eq!(kind(""), "unknown");
        assert_eq!(kind(&"é".repeat(500)).chars().count(), MAX_KIND);
    }
}
