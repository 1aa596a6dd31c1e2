//! Output of sessions and databases: replay, export, backup.

use std::os::unix::fs::PermissionsExt;

use insta::assert_snapshot;
use loopstore::extend::append::append;
use loopstore::extend::write;
use loopstore::{AgentMessage, Content, LoopId, Message, SessionId, SessionStore, TurnId};
use serde_json::Value;

use crate::commands::stage::{CommandOutput, Stage, answer};

/// Replaces bidirectional control characters, which the compiler rejects in a source file.
fn plain(said: CommandOutput) -> String {
    said.to_string().replace('\u{202e}', "")
}

/// Appends a turn to a loop of the session `work`.
fn append_turn(stage: &Stage, loop_key: &str, index: u32) {
    let store = stage.store();
    let messages = [
        Message::user("and more"),
        answer(vec![Content::text("Yes.")]),
    ];
    let messages = messages
        .map(|message| {
            AgentMessage::from(message)
                .in_turn(TurnId::new("source", index))
                .into()
        })
        .into();
    write(&store, |write| {
        let session = write.session(&SessionId::new("work").unwrap())?;
        let id = LoopId::new(loop_key).unwrap();
        let row = write.loop_by_id(session.unwrap().key, &id)?.unwrap();
        append(write, row.key, messages, store.counter())
    })
    .unwrap();
}

/// Returns the first lines of the output.
fn head(said: &CommandOutput, lines: usize) -> String {
    said.out.lines().take(lines).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_replay_goes_from_the_root_to_the_leaf() {
    let stage = Stage::new();
    let said = stage.say("replay work --loop try").to_string();
    let lines: Vec<&str> = said.lines().filter(|l| !l.starts_with("> line ")).collect();
    assert_snapshot!(lines.join("\n"), @r#"
    ── loop ask

    ── turn 0
    user
    > ask what is broken

    assistant
    > Turn 0 of: ask what is broken
    > (call ask-0) read_file {"path":"src/0.rs"}

    result of read_file (call ask-0)

    ── loop try

    ── turn 0
    user
    > try it

    assistant
    > Turn 0 of: try it
    > (call try-0) read_file {"path":"src/0.rs"}

    result of read_file (call try-0)

    ── turn 1
    assistant
    > Turn 1 of: try it
    > (call try-1) read_file {"path":"src/1.rs"}

    result of read_file (call try-1)
    "#);
}

#[test]
fn a_replay_shows_compactions_and_what_the_model_saw() {
    let stage = Stage::new();
    stage.say("compact work --loop ask --force --keep-first 0 --keep-recent 1");
    append_turn(&stage, "ask", 90);
    stage.say("undo work --loop ask");
    append_turn(&stage, "ask", 91);
    let steps = stage.json("replay work --loop ask --contexts");
    let steps = steps.as_array().unwrap();
    let told: Vec<String> = steps
        .iter()
        .map(|step| match step["change"].as_str() {
            Some(change) => format!("{change} {} {}", step["loop_id"], step["tokens_after"]),
            None => format!(
                "{} {} {} saw {} messages of {} tokens",
                step["loop_id"],
                step["turn"],
                step["seqs"],
                step["context"]["messages"].as_array().map_or(0, Vec::len),
                step["context"]["tokens"]
            ),
        })
        .collect();
    assert_snapshot!(told.join("\n"), @r#"
    "ask" 0 [0,2] saw 1 messages of 9 tokens
    "ask" 1 [3,4] saw 3 messages of 446 tokens
    "ask" 2 [5,6] saw 5 messages of 883 tokens
    compacted "ask" 376
    "ask" 3 [7,8] saw 4 messages of 382 tokens
    undone "ask" 376
    "ask" 4 [9,10] saw 10 messages of 1337 tokens
    "#);
    let said = stage.say("replay work --loop ask --contexts --instant");
    assert!(said.out.contains("── what happened"), "{said}");
    assert!(said.out.contains("── compacted by digest"), "{said}");
}

#[test]
fn a_replay_gives_the_requests_of_each_model_call() {
    let stage = Stage::new();
    for provider in ["openai", "anthropic"] {
        let said = stage.say(&format!("replay work --as {provider}"));
        let bodies: Vec<Value> = said
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(bodies.len(), 23);
        assert_eq!(bodies[0]["messages"].as_array().unwrap().len(), 1);
        // The messages of the first loop, and the prompt of the second.
        let second = &bodies[3]["messages"];
        assert!(second.to_string().contains("build it"), "{second}");
        let array = stage.json(&format!("replay work --as {provider}"));
        let array = array.as_array().unwrap();
        assert_eq!(array.len(), 23);
        assert_eq!(array[3]["messages"], bodies[3]["messages"]);
        assert_eq!(
            (&array[3]["loop_id"], &array[3]["turn"]),
            (&"build".into(), &0.into())
        );
        assert!(array[3]["mended"].is_array());
    }
    assert_eq!(stage.say("replay worker --as openai").code, 1);
}

#[test]
fn a_replay_with_a_pace_takes_its_time() {
    let stage = Stage::new();
    // All times of the session are equal, so there is nothing to wait for; otherwise it would take a day.
    stage.say("replay work --loop try --speed 0.001 --max-gap 86400");
    for wrong in [
        "replay work --speed 0",
        "replay work --speed fast",
        "replay work --speed 2 --instant",
        "replay work --max-gap -1",
        "replay work --as gemini",
        "replay work --as openai --contexts",
    ] {
        assert_eq!(stage.say(wrong).code, 2, "{wrong}");
    }
    assert_eq!(stage.say("replay nobody").code, 1);
}

#[test]
fn markdown_takes_nothing_for_markup() {
    let stage = Stage::new();
    assert_snapshot!(plain(stage.say("export mess --format markdown")), @r#"
    # `<b>\u{1b}[31mred\u{7}</b>`

    - session `mess'; DROP TABLE sessions;--`
    - agent `agent`
    - created `2026-01-05T09:00:00.000Z`
    - last active `2026-01-05T09:01:00.000Z`

    ## Loop `a:b\u{1b}[2J`

    `Completed`

    **note** `system`, NOW

    ```json
    "Be kind."
    ```

    ### Turn 0

    **user**, 2026-01-05T09:01:00Z

    ```text
    one\u{d}\u{202e}two
    ```

    ### Turn 1

    **user**, 2026-01-05T09:01:00Z

    ```text
    three
    ```

    ### Turn 2

    **assistant**, 2026-01-05T09:01:00Z

    thinking:

    ```text
    hm
    ```

    thinking:

    ```text
    unsigned
    ```

    ```text
    I look.
    ```

    call `c.1` of `ls\u{1b}]0;x\u{7}`:

    ```json
    null
    ```

    call `c.2` of `ls`:

    ```json
    [1.50]
    ```

    ### Turn 3

    **result** of `read_file` (call `c.1`), 2026-01-05T09:01:00Z

    ```text
    see\u{1b}[1m
    ```

    (image `image/png`, 5 bytes)

    ### Turn 4

    **result** of `read_file` (call `c.9`), 2026-01-05T09:01:00Z

    ```text
    lost
    ```

    ### Turn 5

    **assistant**, 2026-01-05T09:01:00Z

    ```text
    ```

    ### Turn 6

    **assistant**, 2026-01-05T09:01:00Z

    ```text
    done
    ```

    ### Turn 7

    **user**, 2026-01-05T09:01:00Z

    ```text
    thanks
    ```
    "#);
}

#[test]
fn lines_have_their_places() {
    let stage = Stage::new();
    let said = stage.say("export work --format jsonl --loop try");
    let places: Vec<String> = said
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| {
            format!(
                "{} {} {} {} {}",
                line["session"], line["loop"], line["turn"], line["seq"], line["message"]["role"]
            )
        })
        .collect();
    assert_snapshot!(places.join("\n"), @r#"
    "work" "ask" 0 0 "user"
    "work" "ask" 0 1 "assistant"
    "work" "ask" 0 2 "toolResult"
    "work" "try" 0 0 "user"
    "work" "try" 0 1 "assistant"
    "work" "try" 0 2 "toolResult"
    "work" "try" 1 3 "assistant"
    "work" "try" 1 4 "toolResult"
    "#);
    let whole = stage.say("export work --format jsonl").out;
    let messages = |text: &str| text.matches("{\"record\":\"message\"").count();
    assert_eq!(messages(&whole), 54);
    // A chain is not a session.
    std::fs::write(stage.path("chain.jsonl"), &said.out).unwrap();
    assert_eq!(stage.say("--db other.db import chain.jsonl").code, 1);
}

#[test]
fn lines_bring_a_session_into_another_database() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    stage.say("undo work");
    stage.say("export work --format jsonl -o work.jsonl");
    assert_eq!(stage.say("--db other.db import work.jsonl").code, 0);
    for command in [
        "context work",
        "history work --json",
        "show work --json",
        "context work --loop try",
    ] {
        let other = stage.say(&format!("--db other.db {command}"));
        assert_eq!(other.out, stage.say(command).out, "{command}");
    }
    stage.say("--db other.db export work --format jsonl -o again.jsonl");
    let read = |name: &str| std::fs::read_to_string(stage.path(name)).unwrap();
    assert!(read("again.jsonl") == read("work.jsonl"));
    let again = stage.json("import work.jsonl");
    assert_eq!(again["added_messages"], 0);
    let files = "SELECT count(*) AS files FROM sources WHERE path LIKE '%work.jsonl'";
    let kept = stage.run(&["--json", "sql", files]).json();
    assert_eq!(kept[0]["files"], 0);
}

#[test]
fn a_trajectory_brings_a_session_into_another_database() {
    let stage = Stage::new();
    stage.say("compact work --force --keep-first 0 --keep-recent 1");
    let said = stage.say("export work --format atif -o work.json");
    assert_eq!(said.code, 0);
    let notes = &said.err;
    for note in [
        "note: runs of compaction with their blocks and undos: 1, only in extra.loopstore",
        "note: versions of agents: 1, not in the document",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    assert_eq!(stage.say("--db other.db import work.json").code, 0);
    stage.say("export work --format jsonl -o work.jsonl");
    stage.say("--db other.db export work --format jsonl -o again.jsonl");
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert!(read("again.jsonl") == read("work.jsonl"));
    let written = stage.json("export work --format atif -o again.json");
    let omitted = written["omitted"].as_array().unwrap();
    let runs = serde_json::json!({"kind": "run", "count": 1, "kept": true});
    assert!(omitted.contains(&runs), "{written}");
    let chain = stage.json("export work --format atif --loop try");
    assert_eq!(chain["schema_version"], "ATIF-v1.8");
    assert!(chain["extra"].get("loopstore").is_none());
}

#[test]
fn requests_hold_the_originals_of_the_chain() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    let count = |value: &Value| value["messages"].as_array().unwrap().len();
    let openai = stage.json("export work --format openai");
    assert_eq!(count(&openai), 49);
    assert_eq!(
        count(&stage.json("export work --format openai --loop try")),
        8
    );
    let said = stage.say("export mess --format anthropic");
    assert!(said.err.contains("note: a call has no result"), "{said}");
}

#[test]
fn a_session_is_written_to_a_file_and_comes_back() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    let context = stage.json("context work");
    assert_snapshot!(stage.say("export work --format phi-core -o work.json"), @"Wrote 66.8 KiB to work.json.");
    let written = stage.json("export work --format phi-core -o again.json");
    assert_eq!(written["file"], "again.json");
    let bytes = std::fs::read(stage.path("work.json")).unwrap();
    assert_eq!(written["bytes"], bytes.len());
    assert_eq!(std::fs::read(stage.path("again.json")).unwrap(), bytes);
    let mode = std::fs::metadata(stage.path("work.json"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // In this database it changes nothing; in another one it adds the session.
    assert_eq!(stage.json("import work.json")["added_messages"], 0);
    assert_eq!(stage.json("context work"), context);
    stage.say("--db other.db import work.json");
    let other = stage.json("--db other.db context work");
    assert_eq!(other["messages"], context["messages"]);
    assert_eq!(
        stage.json("--db other.db sessions")[0]["title"],
        "Repair the build"
    );
    assert_eq!(stage.json("--db other.db verify")["ok"], true);
}

#[test]
fn the_original_file_is_given_back() {
    let stage = Stage::empty();
    let run = |task: u32| {
        format!(
            "{{\"task_id\":{task},\"trial\":0,\"traj\":[{{\"role\":\"user\",\"content\":\"\\u0061sk\"}}]}}\n"
        )
    };
    let text = format!("\n  {}\n{}", run(1), run(2).trim_end());
    std::fs::write(stage.path("runs.jsonl"), &text).unwrap();
    stage.say("import runs.jsonl");
    for session in ["runs-1-0", "runs-2-0"] {
        let said = stage.say(&format!("export {session} --format original"));
        assert_eq!(said.out, text);
    }
    assert_snapshot!(stage.say("export runs-1 --format original --source other.jsonl"), @"
    --- stderr
    error: session runs-1-0 has no such source file; it has FOLDER/runs.jsonl
    --- exit 1
    ");
    assert_snapshot!(stage.say("export runs-1 --format original --json"), @r#"
    {
      "error": "--json needs -o FILE with this format: it is not one JSON document",
      "hint": null,
      "code": 2
    }
    --- stderr
    error: --json needs -o FILE with this format: it is not one JSON document
    --- exit 2
    "#);
    stage.say("export runs-1 --format original -o back.jsonl");
    assert_eq!(
        std::fs::read_to_string(stage.path("back.jsonl")).unwrap(),
        text
    );
    stage.say("--db without.db import runs.jsonl --no-source");
    assert_snapshot!(stage.say("--db without.db export runs-1 --format original"), @"
    --- stderr
    error: session runs-1-0 has no source file: it was recorded here, or imported with --no-source, --redact or --session; import its file again
    --- exit 1
    ");
}

#[test]
fn an_export_is_refused_where_it_would_do_harm() {
    let stage = Stage::new();
    for file in ["loopstore.db", "./loopstore.db", "loopstore.db-wal"] {
        let said = stage.say(&format!("export work --format phi-core -o {file}"));
        assert_eq!(said.code, 1, "{said}");
        assert!(said.err.contains("it is the database"), "{said}");
    }
    assert_snapshot!(stage.say("export work --format phi-core -o none/x.json"), @"
    --- stderr
    error: cannot write none/x.json: No such file or directory (os error 2)
    --- exit 1
    ");
    assert_snapshot!(stage.say("export work --format phi-core --loop ask"), @"
    --- stderr
    error: phi-core and original export whole sessions; omit --loop
    --- exit 2
    ");
    assert_snapshot!(stage.say("export work --format markdown --json"), @r#"
    {
      "error": "--json needs -o FILE with this format: it is not one JSON document",
      "hint": null,
      "code": 2
    }
    --- stderr
    error: --json needs -o FILE with this format: it is not one JSON document
    --- exit 2
    "#);
    assert_snapshot!(stage.say("export work --format jsonl --without-content"), @"
    --- stderr
    error: --without-content needs --format otlp-json
    --- exit 2
    ");
    assert_eq!(stage.say("export work --format odd").code, 2);
    assert_eq!(stage.say("export work").code, 2);
    assert_eq!(stage.say("export work --format jsonl --source x").code, 2);
    assert_eq!(stage.json("verify")["ok"], true);
}

#[test]
fn traces_are_lines_and_what_was_guessed_is_reported() {
    let stage = Stage::new();
    let with = stage.say("export work --format otlp-json");
    assert_eq!(with.code, 0, "{with}");
    assert!(with.err.contains("answers without a provider"), "{with}");
    assert!(with.out.contains("gen_ai.input.messages"));
    let without = stage.say("export work --format otlp-json --without-content");
    assert!(!without.out.contains("gen_ai.input.messages"));
    for line in with.out.lines().chain(without.out.lines()) {
        let request: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(request["resourceSpans"].is_array());
    }
    assert_eq!(stage.say("export work --format otlp-json --json").code, 2);
}

#[test]
fn a_backup_is_made_and_checked() {
    let stage = Stage::new();
    let said = stage.say("backup copy.db");
    assert_eq!(
        head(&said, 1).split(", ").next(),
        Some("Wrote copy.db"),
        "{said}"
    );
    assert_eq!(stage.json("--db copy.db verify")["ok"], true);
    assert_snapshot!(stage.say("backup copy.db"), @"
    --- stderr
    error: copy.db already exists
    hint: use another name, or --force to replace the file
    --- exit 1
    ");
    let told = stage.json("backup copy.db --force");
    assert_eq!(
        (&told["file"], &told["ok"]),
        (&"copy.db".into(), &true.into())
    );
    let bytes = std::fs::metadata(stage.path("copy.db")).unwrap().len();
    assert_eq!(told["bytes"], bytes);
    assert!(told["seconds"].is_number());
    let compact = stage.json("backup compact.db --compact");
    assert_eq!(
        (&compact["compact"], &compact["ok"]),
        (&true.into(), &true.into())
    );
    assert_eq!(stage.say("backup compact.db --compact").code, 1);
    assert_eq!(stage.json("--db compact.db verify")["ok"], true);
    assert_snapshot!(stage.say("backup loopstore.db --force"), @"
    --- stderr
    error: loopstore.db is the database itself, or belongs to it
    --- exit 1
    ");
    assert_snapshot!(stage.say("backup none/copy.db"), @"
    --- stderr
    error: cannot write none/copy.db: No such file or directory (os error 2)
    --- exit 1
    ");
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    connection
        .execute_batch("UPDATE turns SET tokens = tokens + 1")
        .unwrap();
    drop(connection);
    let said = stage.run(&["--json", "backup", "copy.db", "--force"]);
    assert_eq!(
        (said.code, &said.json()["ok"]),
        (3, &false.into()),
        "{said}"
    );
    assert_eq!(stage.json("--db copy.db verify")["ok"], true);
}

#[test]
fn closed_pipes_are_quiet() {
    use std::process::{Command, Stdio};
    let stage = Stage::new();
    for args in [
        &["replay", "work", "--contexts"][..],
        &["replay", "work", "--as", "openai"],
        &["export", "work", "--format", "phi-core"],
        &["export", "work", "--format", "openai"],
        &["export", "work", "--format", "markdown"],
    ] {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("loopstore"))
            .args(args)
            .current_dir(stage.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}
