//! Helpers: sessions as trajectories, and back.

use loopstore::extend::SessionStore;
use loopstore::model::{
    AgentMessage, AssistantMessage, Author, Content, Json, Message, UserMessage,
};
use loopstore::{SessionId, Store};
use loopstore_export::{ExportForm, ExportReport, export};
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use serde_json::{Value, json};

/// Returns a session as a trajectory, with the report of the export.
pub fn written(store: &dyn SessionStore, id: &SessionId) -> (String, ExportReport) {
    let mut bytes = Vec::new();
    let report = export(store, id, None, ExportForm::Atif, &mut bytes).unwrap();
    (String::from_utf8(bytes).unwrap(), report)
}

/// Returns the lines of a session, which contain everything that is stored of it.
pub fn lines(store: &dyn SessionStore, id: &SessionId) -> String {
    let mut bytes = Vec::new();
    export(store, id, None, ExportForm::Lines, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Imports a text as a file.
pub fn read(store: &dyn SessionStore, text: &[u8]) -> Result<ImportReport, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trajectory.json");
    std::fs::write(&path, text).unwrap();
    let options = ImportOptions::default();
    import_paths(store, &[path], &options, &mut |_| {}).map_err(|error| error.to_string())
}

pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Appends messages with everything that the format has no place for.
pub fn odd_session(store: &Store) -> SessionId {
    let chat = store.session("harbour").unwrap();
    let sealed = r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"I think."}],"encrypted_content":"gAAA","n":1.50}"#;
    let mut answer = AssistantMessage {
        content: vec![
            Content::sealed("openai", Json::parse(sealed).unwrap()),
            Content::text("I look."),
            Content::thinking("Clouds.", Some("c2ln".into())),
            Content::text("And again."),
            Content::Other(Json::parse(r#"{"type":"citation","at":[1,{"x":null}]}"#).unwrap()),
        ],
        stop_reason: Some("toolUse".into()),
        model: Some("otter".into()),
        provider: Some("openai".into()),
        usage: serde_json::from_str(
            r#"{"input":30,"output":7,"cache_read":20,"total_tokens":57,"cost":0.025,"x":1}"#,
        )
        .unwrap(),
        timestamp: Some(1_780_000_000_123.into()),
        ..AssistantMessage::default()
    };
    for (id, name, arguments) in [
        ("c1", "look", r#"{"at":1.0,"big":12345678901234567890123}"#),
        ("c2", "say", r#""no object""#),
    ] {
        let arguments = Json::parse(arguments).unwrap();
        answer.content.push(Content::tool_call(id, name, arguments));
    }
    let mut prompt = UserMessage {
        content: vec![
            Content::text("What is \u{1f3d4} \u{0}this?"),
            Content::image("iVBORw0KGgo=", "image/png"),
            Content::image("AAAA", "image/bmp"),
        ],
        timestamp: Some(1_780_000_000_000.into()),
        ..UserMessage::default()
    };
    if let Content::Text(text) = &mut prompt.content[0] {
        text.extra.insert("mark", Json::string("x"));
    }
    let mut first: AgentMessage = Message::User(prompt).into();
    first.extra_mut().insert("nodeId", Json::string("n1"));
    let messages: Vec<AgentMessage> = vec![
        AgentMessage::extension("progress", json!({"at": 1}).into()),
        AgentMessage::extension("system", json!({"content": "Be brief."}).into()),
        AgentMessage::extension(
            "system",
            json!({"content": [{"type": "text", "text": "Be kind."}], "x": 1}).into(),
        ),
        first,
        Message::Assistant(answer).into(),
        Message::tool_result("c1", "Rain.").with_error().into(),
        AgentMessage::extension("note", Json::string("between")),
        Message::tool_result("c2", "").into(),
        Message::user("It is noon.")
            .with_author(Author::Harness)
            .into(),
        Message::tool_result("c9", "A late one.").into(),
        Message::assistant("").into(),
        Message::user("").into(),
        Message::assistant("Done.").into(),
    ];
    chat.append(messages).unwrap();
    chat.id().clone()
}
