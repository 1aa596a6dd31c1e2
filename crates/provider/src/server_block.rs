//! Blocks of tools that Anthropic runs itself.

use serde::Deserialize;

use loopstore_model::Json;

/// A call or a result of a tool that the provider runs itself. Both are blocks of an answer.
pub(crate) enum ServerBlock {
    /// The call: its id, and the name of the tool.
    Use(String, String),
    /// The result of the call with this id.
    Result(String),
}

impl ServerBlock {
    /// Reads a block of Anthropic; `None` for a block of another kind.
    pub(crate) fn of(item: &Json) -> Option<Self> {
        #[derive(Deserialize)]
        struct Named {
            r#type: String,
            id: Option<String>,
            name: Option<Json>,
            tool_use_id: Option<String>,
        }
        let item: Named = item.read().ok()?;
        match item.r#type.as_str() {
            "server_tool_use" | "mcp_tool_use" => {
                let name = item.name.and_then(|name| name.read().ok());
                Some(Self::Use(item.id?, name.unwrap_or_default()))
            }
            kind if kind.ends_with("_tool_result") => item.tool_use_id.map(Self::Result),
            _ => None,
        }
    }
}
