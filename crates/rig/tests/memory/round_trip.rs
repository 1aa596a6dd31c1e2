//! Every message of rig is returned as it was appended.

use loopstore::EntryQuery;
use loopstore_rig::LoopstoreMemory;
use proptest::prelude::*;
use rig_core::memory::ConversationMemory;
use rig_core::message::{
    AssistantContent, AssistantMessage, Audio, AudioMediaType, CallId, Citation, Document,
    DocumentMediaType, DocumentRange, DocumentSourceKind, Image, ImageDetail, ImageMediaType,
    LocalCallId, Message, Opaque, Origin, ProviderCallId, Reasoning, Source, SourceLocation,
    StopReason, Text, ToolCall, ToolFunction, ToolName, ToolResult, ToolResultContent, UserContent,
    Video, VideoMediaType,
};
use serde_json::Value;

use crate::support::{id, memory};

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => any::<String>(),
        1 => Just(String::new()),
        1 => Just("$loopstore".to_owned()),
        1 => Just("{\"$loopstore\":0}".to_owned()),
        3 => "[a-z \"\\\\\u{0}\u{7f}äß\u{1f600}\n]{30,80}",
        2 => Just("One and the same text, longer than what stays where it is.".to_owned()),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[a-z_]{1,12}"
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no other", |n| n.is_finite())
            .prop_map(Value::from),
        words().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![words(), Just("type".to_owned()), Just("id".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn citation(text: &str) -> Citation {
    let mut citation = Citation::new([
        Source::new(SourceLocation::Url {
            url: "https://example.com".into(),
        })
        .confidence(0.3),
        Source::new(SourceLocation::Document {
            index: Some(1),
            id: None,
            within: Some(DocumentRange::Pages(1..3)),
        })
        .title("A page")
        .cited_text("words"),
    ]);
    citation.span = Text::new(text).span(0..text.len());
    citation
}

fn text() -> impl Strategy<Value = Text> {
    (words(), any::<bool>()).prop_map(|(text, is_cited)| {
        let cited = is_cited.then(|| citation(&text));
        Text::new(text).with_citations(cited)
    })
}

fn data() -> impl Strategy<Value = DocumentSourceKind> {
    prop_oneof![
        words().prop_map(DocumentSourceKind::Url),
        "[A-Za-z0-9+/]{0,80}".prop_map(DocumentSourceKind::Base64),
        words().prop_map(DocumentSourceKind::FileId),
        prop::collection::vec(any::<u8>(), 0..60).prop_map(DocumentSourceKind::Raw),
        words().prop_map(DocumentSourceKind::String),
        Just(DocumentSourceKind::Unknown),
    ]
}

fn image() -> impl Strategy<Value = Image> {
    let media_type = prop::option::of(prop::sample::select(vec![
        ImageMediaType::PNG,
        ImageMediaType::SVG,
    ]));
    let detail = prop::option::of(prop::sample::select(vec![
        ImageDetail::Low,
        ImageDetail::Auto,
    ]));
    (data(), media_type, detail).prop_map(|(data, media_type, detail)| Image {
        data,
        media_type,
        detail,
        native: None,
    })
}

fn call_id() -> impl Strategy<Value = CallId> {
    prop_oneof![
        name().prop_filter_map("no id", |id| ProviderCallId::new(id).map(CallId::from)),
        any::<bool>().prop_map(|_| CallId::from(LocalCallId::new())),
    ]
}

fn function() -> impl Strategy<Value = ToolFunction> {
    let name = || name().prop_map(|name| ToolName::new(name).unwrap());
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| ToolFunction::new(name, value)),
        (name(), words()).prop_map(|(name, text)| ToolFunction::parse(name, &text)),
    ]
}

fn result() -> impl Strategy<Value = ToolResult> {
    let item = prop_oneof![
        text().prop_map(ToolResultContent::Text),
        value().prop_map(|value| ToolResultContent::Json { value }),
        image().prop_map(ToolResultContent::Image),
    ];
    (
        call_id(),
        name(),
        prop::collection::vec(item, 0..3),
        any::<bool>(),
    )
        .prop_map(|(call, name, content, is_error)| ToolResult {
            call,
            name: ToolName::new(name).unwrap(),
            content,
            is_error,
        })
}

fn user() -> impl Strategy<Value = UserContent> {
    let params =
        || prop::option::of(value().prop_filter("rig writes none for it", |v| !v.is_null()));
    prop_oneof![
        text().prop_map(UserContent::Text),
        image().prop_map(UserContent::Image),
        data().prop_map(|data| {
            UserContent::Audio(Audio {
                data,
                media_type: Some(AudioMediaType::PCM16),
            })
        }),
        (data(), params()).prop_map(|(data, additional_params)| {
            UserContent::Video(Video {
                data,
                media_type: Some(VideoMediaType::MOV),
                additional_params,
            })
        }),
        (data(), params()).prop_map(|(data, additional_params)| {
            let media_type = Some(DocumentMediaType::Python);
            UserContent::Document(Document {
                data,
                media_type,
                additional_params,
            })
        }),
        result().prop_map(UserContent::ToolResult),
    ]
}

fn assistant() -> impl Strategy<Value = AssistantContent> {
    let block = prop_oneof![
        text().prop_map(AssistantContent::Text),
        (words(), any::<bool>()).prop_map(|(text, redacted)| {
            AssistantContent::Reasoning(Reasoning {
                text,
                redacted,
                native: None,
            })
        }),
        (call_id(), function())
            .prop_map(|(id, function)| AssistantContent::ToolCall(ToolCall::new(id, function))),
        image().prop_map(AssistantContent::Image),
        (value(), any::<bool>())
            .prop_map(|(item, replay)| AssistantContent::Opaque(Opaque { item, replay })),
    ];
    (block, prop::option::of(value())).prop_map(|(block, native)| match native {
        Some(item) => block.with_native(item),
        None => block,
    })
}

fn message() -> impl Strategy<Value = Message> {
    let stop = prop::option::of(prop_oneof![
        Just(StopReason::Stop),
        Just(StopReason::Length),
        Just(StopReason::ToolUse),
        words().prop_map(StopReason::Error),
        words().prop_map(StopReason::Aborted),
    ]);
    let origin = prop::option::of(
        (words(), words(), words(), prop::option::of(words())).prop_map(
            |(api, provider, model, response_id)| {
                let mut origin = Origin::new(api, provider, model);
                origin.response_id = response_id;
                origin
            },
        ),
    );
    prop_oneof![
        words().prop_map(Message::system),
        prop::collection::vec(user(), 0..5).prop_map(|content| Message::User { content }),
        (prop::collection::vec(assistant(), 0..5), origin, stop).prop_map(
            |(content, origin, stop)| {
                Message::Assistant(
                    AssistantMessage::new(content)
                        .with_origin(origin)
                        .with_stop(stop),
                )
            }
        ),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_message_comes_back_as_another(turns in prop::collection::vec(prop::collection::vec(message(), 1..5), 1..4)) {
        let memory = memory();
        runtime().block_on(async {
            let mut said = Vec::new();
            for turn in turns {
                memory.append(&id("c"), turn.clone()).await.unwrap();
                said.extend(turn);
                let shown = memory.load(&id("c")).await.unwrap();
                assert_eq!(shown, said);
                let again = memory.clone().originals().load(&id("c")).await.unwrap();
                assert_eq!(again, said);
            }
        });
    }
}

/// Returns the size of the stored messages of a conversation in bytes.
fn bytes(memory: &LoopstoreMemory) -> usize {
    let entries = memory
        .session(&id("c"))
        .unwrap()
        .entries(&EntryQuery::new())
        .unwrap();
    entries
        .iter()
        .map(|entry| serde_json::to_string(&entry.message).unwrap().len())
        .sum()
}

#[tokio::test]
async fn what_a_provider_said_is_stored_once_for_each_form_of_it() {
    let memory = memory();
    let said = "It rains. ".repeat(2_000);
    let item =
        serde_json::json!({"type": "message", "content": [{"type": "output_text", "text": said}]});
    let answer = Message::from(AssistantContent::text(said.clone()).with_native(item));
    let raw = UserContent::Image(Image {
        data: DocumentSourceKind::Raw(vec![7; 30_000]),
        ..Image::default()
    });
    let turn = vec![Message::from(raw), answer];
    memory.append(&id("c"), turn.clone()).await.unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), turn);
    assert!(bytes(&memory) < 62_000, "{} bytes", bytes(&memory));
}
