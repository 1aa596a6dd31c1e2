//! Hostile ids, messages, fields and files.

use std::io::{Seek, Write};

use loopstore::{AgentMessage, Json, Message as Stored, OpenError, Store};
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_rig::{Error, LoopstoreMemory};
use rig_core::memory::{Compactor, ConversationMemory, DemotionHook};
use rig_core::message::{Message, ToolResultContent, UserContent};
use serde_json::{Value, json};

use crate::support::{fill, id, memory, refusal, source, turn};

fn result(value: Value) -> Message {
    let call = rig_core::message::CallId::from_wire("c1");
    let name = rig_core::message::ToolName::new("t").unwrap();
    Message::from(UserContent::tool_result(
        call,
        name,
        vec![ToolResultContent::json(value)],
    ))
}

fn nested(depth: usize) -> Value {
    (1..depth).fold(json!(1), |inner, level| {
        if level % 2 == 0 {
            json!([inner])
        } else {
            json!({"a": inner})
        }
    })
}

#[tokio::test]
async fn json_that_nests_deeply_is_stored_and_cannot_be_read() {
    let memory = memory();
    memory
        .append(&id("c"), vec![result(nested(100))])
        .await
        .unwrap();
    assert_eq!(memory.load(&id("c")).await.unwrap(), [result(nested(100))]);
    for depth in [101, 128, 1_000] {
        let turn = vec![Message::user("Look."), result(nested(depth))];
        let error = memory.append(&id("c"), turn.clone()).await.unwrap_err();
        assert!(matches!(source(&error), Error::TooDeep { depth: found, .. } if *found == depth));
        let error = memory.on_demote(&id("d"), turn).await.unwrap_err();
        assert!(matches!(source(&error), Error::TooDeep { .. }), "{error}");
    }
    assert_eq!(memory.load(&id("c")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_id_that_is_none_panics_or_is_another_conversation() {
    let memory = memory();
    for wrong in [String::new(), "c".repeat(513)] {
        let wrong = id(&wrong);
        let calls = [
            memory.load(&wrong).await.unwrap_err(),
            memory.append(&wrong, turn(0)).await.unwrap_err(),
            memory.clear(&wrong).await.unwrap_err(),
            memory.on_demote(&wrong, turn(0)).await.unwrap_err(),
            memory
                .clone()
                .compacting()
                .1
                .compact(&wrong, &turn(0), None)
                .await
                .unwrap_err(),
        ];
        for error in calls {
            assert!(
                matches!(source(&error), Error::Store(loopstore::Error::Id(_))),
                "{error}"
            );
        }
    }
    let strange = [
        "../../etc/passwd",
        "'; DROP TABLE sessions; --",
        "a\nb",
        "\u{202e}c",
        "%",
        "c c",
    ];
    for (number, name) in strange.iter().enumerate() {
        memory.append(&id(name), turn(number)).await.unwrap();
    }
    for (number, name) in strange.iter().enumerate() {
        assert_eq!(memory.load(&id(name)).await.unwrap(), turn(number));
    }
}

#[tokio::test]
async fn a_field_that_somebody_forged_stops_the_conversation() {
    let memory = memory();
    let session = memory.session(&id("c")).unwrap();
    let forged = [
        json!(null),
        json!(7),
        json!("text"),
        json!({}),
        json!({"blocks": "t", "item": {"role": "user"}}),
        json!({"blocks": "t", "item": {"role": "system", "content": {"$loopstore": 9}}}),
        json!({"blocks": "t", "item": {"role": "assistant", "content": [{"type": "text", "text": {"$loopstore": -1}}]}}),
        json!({"blocks": "tttt", "item": "not JSON"}),
        json!({"blocks": "t", "item": "[[[["}),
        json!({"blocks": "t", "part": [0, 18_446_744_073_709_551_615u64], "item": {"role": "user", "content": []}}),
        json!({"blocks": "t", "part": [5, 2], "raw": [3, 1], "item": {"role": "user", "content": []}}),
        json!({"blocks": "t", "raw": [0], "item": {"role": "user", "content": [
            {"type": "image", "data": {"type": "base64", "value": "*** not base64 ***"}}]}}),
    ];
    for field in &forged {
        let mut message = AgentMessage::from(Stored::user("These words were said."));
        message
            .extra_mut()
            .insert("rigMessage", Json::from(field.clone()));
        session
            .append([message, Stored::assistant("Yes.").into()])
            .unwrap();
    }
    for memory in [memory.clone(), memory.clone().originals()] {
        let shown = memory.load(&id("c")).await.unwrap();
        assert_eq!(shown.len(), 2 * forged.len());
        for message in shown.iter().step_by(2).take(9) {
            assert_eq!(
                message.rag_text().as_deref(),
                Some("These words were said.")
            );
        }
    }
}

#[tokio::test]
async fn a_database_that_is_none_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let missing = LoopstoreMemory::open(folder.path().join("no/such/folder/agent.db"));
    assert!(missing.is_err());
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "These are no tables. ".repeat(400)).unwrap();
    let error = LoopstoreMemory::open(&text).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::NotADatabase { .. } | OpenError::Damaged { .. }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_store_that_may_only_be_read_loses_an_append_silently() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    fill(&LoopstoreMemory::open(&path).unwrap(), "c", 1).await;
    let memory = LoopstoreMemory::new(Store::options().read_only(true).open(&path).unwrap());
    assert_eq!(memory.load(&id("c")).await.unwrap(), turn(0));
    for error in [
        memory.append(&id("c"), turn(1)).await.unwrap_err(),
        memory.clear(&id("c")).await.unwrap_err(),
        memory.on_demote(&id("d"), turn(1)).await.unwrap_err(),
    ] {
        assert!(
            matches!(refusal(&error), loopstore::StoreError::ReadOnly),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_file_that_is_damaged_while_it_is_open_panics_or_answers_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let memory = LoopstoreMemory::open(&path).unwrap();
    let said = fill(&memory, "c", 60).await;
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    drop(memory);
    let length = std::fs::metadata(&path).unwrap().len();
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(std::io::SeekFrom::Start(8_192)).unwrap();
    file.write_all(&vec![0xA5; usize::try_from(length - 8_192).unwrap()])
        .unwrap();
    let Ok(memory) = LoopstoreMemory::open(&path) else {
        return;
    };
    let loaded = memory.load(&id("c")).await;
    assert!(
        !matches!(&loaded, Ok(shown) if *shown != said),
        "another answer: {loaded:?}"
    );
    if let Err(error) = loaded {
        assert!(matches!(source(&error), Error::Store(_)), "{error:?}");
    }
    memory.append(&id("c"), turn(1)).await.unwrap_err();
}

#[tokio::test]
async fn a_secret_that_was_redacted_comes_back_from_what_rig_knows_beside_it() {
    let memory = memory();
    let text = "It was: git clone https://me:hunter2@example.org/x".to_owned();
    let answer = rig_core::message::AssistantContent::text(text.clone())
        .with_native(json!({"text": text, "cut": "https://me:hunter2@example.org/"}));
    memory
        .append(
            &id("c"),
            vec![Message::user("Which?"), Message::from(answer)],
        )
        .await
        .unwrap();
    let session = memory.session(&id("c")).unwrap();
    redact_session(
        session.store().database(),
        &RedactRequest::new(session.id().clone()),
    )
    .unwrap();
    let shown = memory.load(&id("c")).await.unwrap();
    assert_eq!((shown.len(), &shown[0]), (2, &Message::user("Which?")));
    let all = format!("{shown:?}");
    assert!(
        !all.contains("hunter2") && all.contains("git clone"),
        "{all}"
    );
}

#[tokio::test]
async fn a_file_that_is_gone_takes_an_append_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let memory = LoopstoreMemory::open(&path).unwrap();
    fill(&memory, "c", 1).await;
    std::fs::rename(&path, folder.path().join("elsewhere.db")).unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.path().join(format!("agent.db{suffix}")));
    }
    let error = memory.append(&id("c"), turn(1)).await.unwrap_err();
    assert!(
        matches!(refusal(&error), loopstore::StoreError::FileReplaced),
        "{error:?}"
    );
}
