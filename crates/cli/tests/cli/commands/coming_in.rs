//! `import` and `demo`.

use insta::assert_snapshot;
use serde_json::Value;

use crate::commands::stage::Stage;

fn fixture(name: &str) -> String {
    let path = crate::support::root::fixture(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_transcript_comes_in_once() {
    let stage = Stage::empty();
    std::fs::copy(
        fixture("openai-chat/messages.json"),
        stage.path("chat.json"),
    )
    .unwrap();
    assert_snapshot!(stage.say("import chat.json"), @r#"
    Imported 1 file: 1 session, 5 new messages (N s).
    The file holds 2 loops, 3 turns and 5 messages.
    session chat-0
    --- stderr
    note: chat.json: a call of tool `zoom` came with `id`: missing; recorded as call `function-3`
    note: chat.json: a call of tool `zoom` came with `arguments`: an object, `id`: a number; recorded as call `12`
    "#);
    let again = stage.json("import chat.json --format openai-chat");
    assert_eq!(again["added_messages"], 0);
    assert_eq!(again["files"], 1);
}

#[test]
fn skipped_records_are_told_on_stderr() {
    let stage = Stage::empty();
    std::fs::copy(fixture("phi-core/tree.json"), stage.path("tree.json")).unwrap();
    assert_snapshot!(stage.say("import ."), @r#"
    Imported 1 file: 1 session, 2 new messages (N s).
    The file holds 2 loops, 1 turn and 2 messages.
    session tree
    Left out or repaired: 1 item skipped.
    --- stderr
    skipped: ./tree.json:37: loop `root` is listed twice: the one with 3 messages replaces the one with 1
    "#);
}

#[test]
fn what_is_damaged_unknown_or_missing_is_told_and_the_rest_comes_in() {
    let stage = Stage::empty();
    let chat =
        r#"[{"role":"user","content":"Is it \ud83d dry?"},{"role":"assistant","content":"No."}]"#;
    std::fs::write(stage.path("chat.json"), chat).unwrap();
    std::fs::create_dir(stage.path("folder")).unwrap();
    let units = chat.encode_utf16().flat_map(u16::to_le_bytes);
    let wide: Vec<u8> = [0xFF, 0xFE].into_iter().chain(units).collect();
    std::fs::write(stage.path("folder/wide.json"), wide).unwrap();
    std::fs::write(stage.path("folder/notes.json"), "{\"a\": [1, 2]}").unwrap();
    std::fs::write(stage.path("folder/picture.png"), b"\x89PNG").unwrap();
    assert_snapshot!(stage.say("import chat.json nope.json folder"), @r"
    Imported 2 files: 2 sessions, 4 new messages (N s).
    The files hold 2 loops, 2 turns and 4 messages.
    session chat-0
    session wide-0
    Left out or repaired: 1 path not imported, 3 places repaired, 1 file not read that may hold a conversation, 1 other file not read.
    --- stderr
    not imported: nope.json: cannot be read: No such file or directory (os error 2)
    repaired: chat.json:1: half of a surrogate pair, replaced by U+FFFD
    repaired: folder/wide.json: read as UTF-16
    repaired: folder/wide.json:1: half of a surrogate pair, replaced by U+FFFD
    not read: folder/notes.json: JSON of no known format; if it is a transcript, name its format
    --- exit 1
    ");
    let said = stage.json("sessions");
    assert_eq!(
        said.as_array()
            .map(Vec::len)
            .or(said["sessions"].as_array().map(Vec::len)),
        Some(2)
    );
}

#[test]
fn one_session_can_be_chosen() {
    let stage = Stage::empty();
    let path = fixture("phi-core/tree.json");
    let said = stage.run(&["import", &path, "--session", "tree"]);
    assert_eq!(said.code, 0, "{said}");
    let said = stage.run(&["import", &path, "--session", "nope"]);
    assert_eq!(said.code, 1, "{said}");
}

#[test]
fn a_path_that_is_not_there_leaves_nothing_behind() {
    let stage = Stage::empty();
    assert_snapshot!(stage.say("import nope.jsonl"), @r#"
    --- stderr
    error: cannot read nope.jsonl: No such file or directory (os error 2)
    hint: check the path and its permissions
    --- exit 1
    "#);
    assert!(!stage.path("loopstore.db").exists());
    assert_eq!(stage.say("import").code, 2);
    assert_eq!(stage.say("import . --format nope").code, 2);
    assert_eq!(stage.run(&["import", ".", "--session", ""]).code, 2);
}

#[test]
fn the_demo_tells_the_whole_story() {
    let stage = Stage::empty();
    assert_snapshot!(stage.say("demo"), @r#"
    loopstore keeps every message of an agent, and decides which of them its model reads.
    This is a made-up session: an agent repairs a web shop. Indented lines are what is stored.

    1. Recorded: 4 loops, 40 turns, 80 messages.
    A session is one conversation with an agent. A loop is what one prompt sets off; a turn is
    one answer of the model with the results of the tools that it called.

    2. The context before: the messages that the model reads.
    It has 62,060 tokens, too near to the window of 64,000 that the model can take. It begins:
       user Checkout fails for orders in yen. Find out why; do not touch the payment gateway. 
       assistant I look for the place where amounts become minor units. (call call-1-0) grep {…
       result of grep (call call-1-0) src/money.rs: fn amount(currency: &Item) -> Result<Item>…
       assistant src/money.rs converts them, so I read it. (call call-1-1) read_file {"path":"…
       … and 76 messages

    3. A compaction makes room (loopstore compact demo --max-tokens 64000):
    62,060 -> 7,844 tokens, 80 -> 28 messages.
    It lays a block over each loop: which turns are read as they are (first), with long outputs
    cut (recent), or as a short document in their place (compacted). No model was asked.
    LOOP    SECTION    TURNS  MESSAGES  TOKENS
    loop-1  compacted  0-7           1     453
    loop-2  compacted  0-8           1     445
    loop-3  compacted  0-8           1     440
    loop-4  first      0-1           5   4,088
    loop-4  compacted  2-3           1     151
    loop-4  recent     4-13         19   2,267
    all                             28   7,844

    4. What the model reads in place of loop-2 now; t3 is turn 3 of it:
       | [Working state of turns 0..8, made from the record; tN names the turn that a line comes
       | from. Whole turns: expand session demo, loop loop-2, turns A..B; recall finds more]
       | ## Task
       | - t0: Fix it in src/money.rs and keep the public API as it is. Never round an amount
       | silently.
       | ## Plan
       | As of t7 ([x] done, [>] in progress, [ ] open):
       | - [x] Give each currency its own exponent
       | - [x] Refuse amounts that are too precise
       | - [x] Run the tests of money
       | ## Done, decided and found
       | - t1: I read the file again before changing it.
       | - t2: Each currency gets its own exponent.
       | - t4: An amount of 4200.50 JPY is rounded down, which you ruled out. I look at the
       | callers of parse_amount.
       | - t5: parse_amount now refuses such an amount with AmountError::TooPrecise instead of
       | rounding it.
       | - t8: Fixed as commit 4f2c91a: minor units come from the table EXPONENTS, an amount
       | with more decimal places than its currency has is refused, and all 12 tests of money
       | pass. The public API is unchanged.
       | ## Files
       | - `src/money.rs`: edited t2, t5 (fn minor_unit)
       | ## Commands and errors
       | - found t4: `grep parse_amount src`: 4 files: src/money.rs, src/order/cart.rs,
       | src/gateway/client.rs, src/export/rows.rs
       | - failed t3, passed t6, 2 times: `cargo test money`: error:
       | money::too_precise_is_refused: expected Err(TooPrecise), got Ok(4200)
       | ## Exact values
       | todo_write:status: pending, in_progress (t0), completed (t7)
       | edit_file:old_string: fn minor_unit(self) -> u32 { 2 } (t2), Ok(whole * scale) (t5)
       | edit_file:new_string: fn minor_unit(self) -> u32 { EXPONENTS[self as usize] } (t2),
       | whole.checked_mul(scale).ok_or(AmountError::TooPrecise) (t5)
       | Seen:
       | result: FAILED (t3)
       | test_amount: :row ... ok, :batch ... ok (t6)
       | test_result: FAILED. 11 passed; 1 failed (t3), ok. 12 passed; 0 failed (t6)

    5. Undo takes a compaction back, redo lays it on again (loopstore undo demo; loopstore redo demo):
    Run RUN is undone: 7,844 -> 62,060 tokens
    Run RUN is redone: 62,060 -> 7,844 tokens

    6. An edit takes a single output out, and puts it back (loopstore clear demo call-4-1;
    loopstore restore demo call-4-1). The model then reads one line in its place:
    Cleared 1 part: 7,844 -> 3,930 tokens, 28 -> 28 messages
       [cleared: 15,746 bytes, 449 lines; expand turn 1 of loop loop-4, session demo, to read it]
    Run RUN is undone: 3,930 -> 7,844 tokens

    7. All originals are still there, whatever the model reads; any SQL can ask for them:
       SELECT tool_name, count(*) AS calls, sum(is_error) AS failed,
           max(length(result_text)) AS longest FROM v_tool_calls
           GROUP BY tool_name ORDER BY calls DESC
    tool_name   calls  failed  longest
    shell          11       5     1700
    read_file      11       0    16826
    grep            5       0    11597
    edit_file       5       0       36
    todo_write      3       0       26
    write_file      1       0       55

    What to type next:
       loopstore demo --keep demo.db           keep this session in a file
       loopstore --db demo.db report demo      see it as a page, summaries beside originals
       loopstore --db demo.db recall 40312     ask for what a document left out
       loopstore import ~/.claude/projects     read sessions of your own
    "#);
    assert_eq!(std::fs::read_dir(stage.path("")).unwrap().count(), 0);
    let story = stage.json("demo");
    assert_eq!(story["before"]["tokens"], story["undo"]["tokens_after"]);
    assert_eq!(story["after"]["tokens"], story["redo"]["tokens_after"]);
    assert_eq!(story["after"]["tokens"], story["edit"]["tokens_before"]);
    assert_eq!(
        story["after"]["tokens"],
        story["restore"][0]["tokens_after"]
    );
}

#[test]
fn the_demo_keeps_its_database_if_asked() {
    let stage = Stage::empty();
    assert_eq!(stage.say("demo --keep kept.db").code, 0);
    assert_eq!(stage.json("sessions --db kept.db")[0]["session_id"], "demo");
    assert_snapshot!(stage.say("demo --keep kept.db"), @r#"
    --- stderr
    error: kept.db already exists; name a new file
    --- exit 1
    "#);
}

/// Sets the modification time of a file to an hour ago: a file that was just written is read again.
fn age(path: &std::path::Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    file.set_modified(std::time::SystemTime::now() - hour)
        .unwrap();
}

#[test]
fn an_unchanged_file_is_read_again_only_if_its_session_is_gone_or_it_is_asked_for() {
    if crate::support::keyed::leaves_out(
        "an_unchanged_file_is_read_again_only_if_its_session_is_gone_or_it_is_asked_for",
    ) {
        return;
    }
    let stage = Stage::empty();
    let chat = stage.path("chat.json");
    let text =
        r#"[{"role":"user","content":"Will it rain?"},{"role":"assistant","content":"No."}]"#;
    std::fs::write(&chat, text).unwrap();
    age(&chat);
    let first = stage.json("import chat.json");
    assert_eq!(first["added_messages"], 2);
    let again = stage.say("import chat.json");
    assert_snapshot!(again, @r"
    Imported 1 file: 1 session, 0 new messages (N s).
    The file holds 1 loop, 1 turn and 2 messages.
    1 file unchanged since an earlier import and not read again (--reread reads all).
    session chat-0
    ");
    assert_eq!(stage.json("import .")["unchanged"], 1);
    assert_eq!(stage.json("import . --reread")["unchanged"], Value::Null);
    // A receipt of another session says nothing about this one.
    let other =
        r#"[{"role":"user","content":"Will it snow?"},{"role":"assistant","content":"No."}]"#;
    std::fs::write(stage.path("other.json"), other).unwrap();
    let other = stage.json("import other.json")["sessions"][0]
        .as_str()
        .unwrap()
        .to_owned();
    stage.json(&format!("erase {other} --yes"));
    assert_eq!(stage.json("import chat.json")["unchanged"], 1);
    stage.json("erase chat-0 --yes");
    let restored = stage.json("import chat.json");
    assert_eq!(
        (&restored["unchanged"], &restored["added_messages"]),
        (&Value::Null, &2.into())
    );
    // What was added since is read.
    let text = std::fs::read_to_string(&chat).unwrap();
    let end = text.rfind(']').unwrap();
    let more = format!(
        "{},{}]",
        &text[..end],
        r#"{"role":"user","content":"Go on."}"#
    );
    std::fs::write(&chat, more).unwrap();
    age(&chat);
    assert_eq!(stage.json("import chat.json")["added_messages"], 1);
}
