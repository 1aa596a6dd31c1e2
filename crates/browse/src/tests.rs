//! The screens as they are drawn, and navigation by keys.

use std::path::Path;

use loopstore::extend::append::append;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::extend::write;
use loopstore::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::data::Data;
use super::draw::{Palette, draw};
use super::fill;
use super::state::{Browser, KeyPress, Screen};

/// A browser over a database on disk.
struct OpenedBrowser {
    folder: tempfile::TempDir,
    size: (u16, u16),
    begin: Option<SessionId>,
}

impl OpenedBrowser {
    fn new(size: (u16, u16)) -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
            size,
            begin: None,
        };
        drop(stage.store());
        stage
    }

    /// Returns the session of the demonstration, compacted.
    fn demo(size: (u16, u16)) -> Self {
        let mut stage = Self::new(size);
        let store = stage.store();
        let session = loopstore_demo::record(&store).unwrap();
        let mut request = CompactRequest::default();
        request.policy.window.max_context_tokens = 64_000;
        compact_session_loops(&store, &session, &request).unwrap();
        stage.begin = Some(session);
        stage
    }

    fn store(&self) -> SqliteStore {
        open(self.folder.path(), true).unwrap()
    }

    /// Opens the browser and presses keys; `<` and `>` enclose the name of a key.
    fn press(&self, keys: &str) -> Browser {
        let open = |writes| boxed(self.folder.path(), writes);
        let mut data = Data::new(&open).unwrap();
        let mut browser = Browser::new("agent.db".into(), self.begin.clone(), self.size);
        fill(&mut browser, &mut data);
        for key in keys_of(keys) {
            browser.press(key);
            fill(&mut browser, &mut data);
        }
        browser
    }

    fn shown(&self, keys: &str) -> String {
        lines(&drawn(&self.press(keys), self.size, false))
    }

    /// Returns the live state of each run.
    fn live(&self) -> Vec<Option<i64>> {
        let runs = self.store().run_rows(None).unwrap();
        runs.iter().map(|run| run.number("is_live")).collect()
    }
}

fn open(folder: &Path, writes: bool) -> Result<SqliteStore, OpenError> {
    let path = folder.join("agent.db");
    SqliteStore::open_with(path, SqliteOptions::new().read_only(!writes))
}

fn boxed(folder: &Path, writes: bool) -> Result<Box<dyn Database>, OpenError> {
    Ok(Box::new(open(folder, writes)?))
}

fn keys_of(keys: &str) -> Vec<KeyPress> {
    let (mut all, mut rest) = (Vec::new(), keys);
    while let Some(c) = rest.chars().next() {
        let named = rest.strip_prefix('<').and_then(|name| name.split_once('>'));
        let (key, after) = match named {
            Some((name, after)) => (key_named(name), after),
            None => (KeyPress::Char(c), &rest[c.len_utf8()..]),
        };
        all.push(key);
        rest = after;
    }
    all
}

fn key_named(name: &str) -> KeyPress {
    match name {
        "enter" => KeyPress::Enter,
        "tab" => KeyPress::Tab,
        "esc" => KeyPress::Escape,
        "end" => KeyPress::End,
        "left" => KeyPress::Left,
        "right" => KeyPress::Right,
        "erase" => KeyPress::Erase,
        "again" => KeyPress::Again,
        other => panic!("no key {other}"),
    }
}

fn drawn(browser: &Browser, (width, height): (u16, u16), colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let palette = Palette::new(colours);
    terminal
        .draw(|frame| draw(frame, browser, palette))
        .unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the screen as text, without run ids, which differ in each test.
fn lines(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width.max(1));
    let rows = buffer.content.chunks(width).map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        match line.find("run 0") {
            Some(at) => format!("{}run …", &line[..at]),
            None => line.trim_end().to_owned(),
        }
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Records a session of one loop, with a turn for each text.
fn record(store: &SqliteStore, id: &str, title: &str, texts: &[&str]) {
    let session = Session::new(SessionId::new(id).unwrap(), "agent");
    write(store, |write| {
        let key = create_session(write, &session, Some(title.into()), None)?;
        let record = LoopRecord::new(LoopId::new(format!("{id}-loop")).unwrap(), None);
        let loop_id = create_loop(write, key, &record)?;
        let messages = (0..).zip(texts).map(|(turn, text)| {
            let turn = TurnId::new(record.loop_id.as_str(), turn);
            AgentMessage::from(Message::user(*text))
                .in_turn(turn)
                .into()
        });
        append(write, loop_id, messages.collect(), &HeuristicTokenCounter)
    })
    .unwrap();
}

#[test]
fn an_empty_database_says_what_to_do() {
    let stage = OpenedBrowser::new((60, 6));
    insta::assert_snapshot!(stage.shown("<enter>jhdur"), @r"
    agent.db
    SESSION         TITLE            LOOPS     TURNS      TOKENS
    No sessions yet; `loopstore import` adds some.


    ? keys  q quit  Enter open  / filter  s search
    ");
}

#[test]
fn a_session_in_40_columns() {
    let stage = OpenedBrowser::demo((40, 12));
    insta::assert_snapshot!(stage.shown(""), @"
    agent.db › demo
    context of loop-4: 7,844 of 62,060 toke…
    ▸ LOOPS
    ○ loop-1  8 turns, block 1  Checkout fa…
    ○ loop-2  9 turns, block 1  Fix it in s…
    ○ loop-3  9 turns, block 1  Now the nig…
    ● loop-4  14 turns, block 1  Make the e…




    ? keys  q back  Tab other side  Enter r…
    ");
    insta::assert_snapshot!(stage.shown("<enter>"), @"
    agent.db › demo
    context of loop-4: 7,844 of 62,060 toke…
    ▸ TURNS of loop-4, 13,908 tokens
        0 =     105  › Make the export stre…
        1 =   3,983  I read the writer of r…
        2 Σ      88  collect_rows becomes s…
        3 Σ     217  Now the tests of the e…
        4 ~   4,029  The batches arrive wit…
        5 =      77  The query now sorts by…
        6 =     192  [shell]
        7 =      82  The index is a migrati…
    ? keys  q back  Tab other side  Enter r…
    ");
}

#[test]
fn a_session_in_80_columns() {
    let stage = OpenedBrowser::demo((80, 12));
    insta::assert_snapshot!(stage.shown("<tab>"), @"
    agent.db › demo
    context of loop-4: 7,844 of 62,060 tokens  Yen orders and the nightly export
      LOOPS                          ▸ TURNS of loop-4, 13,908 tokens
    ○ loop-1  8 turns, block 1  Che…     0 = kept           105  › Make the export …
    ○ loop-2  9 turns, block 1  Fix…     1 = kept         3,983  I read the writer …
    ○ loop-3  9 turns, block 1  Now…     2 Σ summarised      88  collect_rows becom…
    ● loop-4  14 turns, block 1  Ma…     3 Σ summarised     217  Now the tests of t…
                                         4 ~ shortened    4,029  The batches arrive…
                                         5 = kept            77  The query now sort…
                                         6 = kept           192  [shell]
                                         7 = kept            82  The index is a mig…
    ? keys  q back  Tab other side  Enter read  h compactions  d diff  u undo  r re…
    ");
}

#[test]
fn a_summary_stands_beside_the_originals() {
    let stage = OpenedBrowser::demo((120, 14));
    insta::assert_snapshot!(stage.shown("<enter>jjj<enter>"), @r#"
    agent.db › demo › loop-4 turn 3
    turn 3 of loop-4: summarised by block 1 on loop-4, a summary of turns 2-3, run …
    ▸ IN THE CONTEXT                                               AS RECORDED
    user                                                         assistant
    [Working state of turns 2..3; expand]                        Now the tests of the export.
    ## Done, decided and found                                   (call call-4-3) shell {"command":"cargo test export"}
    - t2: collect_rows becomes stream_rows, which hands on
    batches of 500.                                              result of shell, failed (call call-4-3)
    - t3: Now the tests of the export.                           test amount::batch ... ok
                                                                 test cart::batch ... ok
    ## Files                                                     test currency::batch ... ok
    - `src/export/rows.rs`: edited t2 (fn stream_rows)           test batch::batch ... ok
                                                                 test row::batch ... ok
    ? keys  q back  ←→ other turn  Tab other side  [ ] message  x drop  c clear  b bring back
    "#);
    let narrow = OpenedBrowser::demo((40, 10));
    insta::assert_snapshot!(narrow.shown("<enter>jjj<enter><tab>"), @r#"
    agent.db › demo › loop-4 turn 3
    turn 3 of loop-4: summarised by block 1…
    ▸ AS RECORDED
    assistant
    Now the tests of the export.
    (call call-4-3) shell {"command":"cargo
    test export"}

    result of shell, failed (call call-4-3)
    ? keys  q back  ←→ other turn  Tab othe…
    "#);
}

#[test]
fn a_cut_output_stands_beside_the_whole_one() {
    let stage = OpenedBrowser::demo((80, 12));
    let shown = stage.shown("<enter>jjjj<enter><end>");
    assert!(shown.contains("shortened by block"), "{shown}");
    assert!(!shown.contains("Σ"), "{shown}");
}

#[test]
fn originals_and_context_are_compared() {
    let stage = OpenedBrowser::demo((80, 12));
    insta::assert_snapshot!(stage.shown("d"), @"
    agent.db › demo › originals and context
    from  raw: 62,060 tokens, 80 messages (turns: 40 raw)
    to    now: 7,844 tokens, 28 messages (turns: 8 kept, 28 summarised, 4 truncated)

    loop-1
      0-7        raw -> summarised
    loop-2
      0-8        raw -> summarised
    loop-3
      0-8        raw -> summarised
    loop-4
    ? keys  q back
    ");
}

#[test]
fn a_filter_leaves_the_sessions_with_its_words() {
    let stage = OpenedBrowser::new((60, 6));
    let store = stage.store();
    for (id, title) in [("s1", "Yen orders"), ("s2", "Nightly export")] {
        record(&store, id, title, &["hello"]);
    }
    insta::assert_snapshot!(stage.shown("/yen"), @r"
    agent.db
    SESSION         TITLE            LOOPS     TURNS      TOKENS
    s1              Yen orders           1         1           6


    /yen▏
    ");
    assert!(stage.shown("/nothing").contains("No session has"));
    assert!(stage.shown("/nothing<esc>").contains("s1"));
}

#[test]
fn sessions_and_loops_show_what_they_were_asked() {
    let stage = OpenedBrowser::new((120, 6));
    let store = Store::from(stage.store());
    let chat = store.session("s1").unwrap();
    chat.append([Message::user("Mend\nthe build")]).unwrap();
    chat.set_project("/work/kite").unwrap();
    let list = stage.shown("");
    assert!(
        list.contains(" Mend the build ") && list.contains(" kite "),
        "{list}"
    );
    assert!(stage.shown("/KITE").contains("s1"));
    let screen = stage.shown("<enter>");
    assert!(screen.contains("Mend the build  in /work/kite"), "{screen}");
    assert!(
        screen.contains("loop-1  1 turn, running  Mend the"),
        "{screen}"
    );
}

#[test]
fn a_hit_is_jumped_to() {
    let stage = OpenedBrowser::demo((100, 12));
    let hits = stage.shown("sscans the whole table<enter>");
    assert!(hits.contains("loop loop-3, turn 6"), "{hits}");
    let there = stage.shown("s\"scans the whole\"<enter><enter>");
    assert!(there.contains("TURNS of loop-3"), "{there}");
    let refused = stage.shown("s\"<enter>");
    assert!(refused.contains("the quote at character"), "{refused}");
}

#[test]
fn a_compaction_is_undone_only_after_a_yes() {
    let stage = OpenedBrowser::demo((100, 24));
    for keys in ["u", "un", "u<esc>", "u<enter>", "hun", "?uy"] {
        stage.press(keys);
        assert_eq!(stage.live(), [Some(1)], "{keys}");
    }
    let shown = stage.shown("uy");
    assert!(shown.contains("is undone"), "{shown}");
    assert_eq!(stage.live(), [Some(0)]);
    assert!(stage.shown("uy").contains("no active compaction"));
    // From the list of compactions, the selected run is redone.
    assert!(stage.shown("hry").contains("is redone"));
    assert_eq!(stage.live(), [Some(1)]);
    // The selection stays.
    assert!(stage.shown("khuyryq").contains("TURNS of loop-3"));
}

#[test]
fn a_turn_is_cleared_dropped_and_brought_back_only_after_a_yes() {
    let stage = OpenedBrowser::demo((120, 24));
    for keys in [
        "cy",
        "<enter>jxn",
        "<enter>jc<esc>",
        "<enter>j<enter>x<enter>",
        "<enter>jby",
    ] {
        stage.press(keys);
        assert_eq!(stage.live(), [Some(1)], "{keys}");
    }
    assert!(stage.shown("<enter>jby").contains("no live edit"));
    let question = stage.shown("<enter>jx");
    let asked = "Drop turn 1 of loop-4 from the context, seen from loop-4? y/n";
    assert!(question.contains(asked), "{question}");
    // The arguments of the call and its result.
    let cleared = stage.shown("<enter>jcy");
    assert!(cleared.contains("Cleared 2 parts: 7,844 -> "), "{cleared}");
    assert_eq!(stage.live(), [Some(1), Some(1)]);
    let list = stage.shown("<enter>");
    assert!(
        list.contains("1 ✎ edited ") && list.contains("block 1, edited"),
        "{list}"
    );
    // The edited form stands beside the original.
    let turn = stage.shown("<enter>j<enter>");
    for text in [
        "edited by run …",
        "IN THE CONTEXT",
        "AS RECORDED",
        "[cleared: ",
        "(call call-4-1), edited",
    ] {
        assert!(turn.contains(text), "{text}: {turn}");
    }
    assert!(stage.shown("h").contains("edit "));
    let back = stage.shown("<enter>j<enter>by");
    assert!(back.contains("is undone"), "{back}");
    assert_eq!(stage.live(), [Some(0), Some(1)]);
    let dropped = stage.shown("<enter>jxy");
    assert!(
        dropped.contains("Removed 2 messages: 7,844 -> "),
        "{dropped}"
    );
    assert!(stage.shown("<enter>").contains("1 · removed "));
    let turn = stage.shown("<enter>j<enter>");
    assert!(turn.contains("message 4 was removed"), "{turn}");
    // The newest run, whatever it is.
    assert!(stage.shown("<enter>j<enter>uy").contains("is undone"));
    assert_eq!(stage.live(), [Some(0), Some(0), Some(1)]);
}

#[test]
fn a_message_of_a_turn_is_selected_and_dropped_with_its_pair() {
    let stage = OpenedBrowser::demo((120, 24));
    for (keys, selected) in [
        ("]", "message 3 (assistant) is selected"),
        (
            "]]",
            "message 4 (result of read_file (call call-4-1)) is selected",
        ),
        ("]]]", "message 4 "),
        ("]][", "message 3 "),
    ] {
        let shown = stage.shown(&format!("<enter>j<enter>{keys}"));
        assert!(shown.contains(selected), "{keys}: {shown}");
    }
    for keys in ["", "][", "]n", "[", "]][["] {
        let shown = stage.shown(&format!("<enter>j<enter>{keys}"));
        assert!(!shown.contains("is selected"), "{keys}: {shown}");
    }
    let question = stage.shown("<enter>j<enter>]]x");
    assert!(
        question.contains("Drop message 4 of turn 1 of loop-4"),
        "{question}"
    );
    let dropped = stage.shown("<enter>j<enter>]]xy");
    let report = "Removed 1 message, 1 part of pairs with them: 7,844 -> ";
    assert!(dropped.contains(report), "{dropped}");
    // The selection stays, and what is left is shown.
    assert!(
        dropped.contains("message 4 (result of read_file"),
        "{dropped}"
    );
    assert!(dropped.contains("message 4 was removed"), "{dropped}");
    assert!(dropped.contains("assistant, edited"), "{dropped}");
    assert!(stage.shown("<enter>j<enter>]]by").contains("is undone"));
}

#[test]
fn what_a_transcript_says_cannot_steer_the_terminal() {
    let mut stage = OpenedBrowser::new((90, 14));
    let bad = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\r\u{8}\u{202e}b\tc\u{2028}\u{0}";
    record(&stage.store(), &format!("s{bad}"), bad, &[bad, "word"]);
    stage.size = (300, 14);
    for keys in [
        "",
        "<enter>",
        "<enter><tab><enter>",
        "sword<enter>",
        "<enter>h",
        "<enter>d",
    ] {
        let browser = stage.press(keys);
        let buffer = drawn(&browser, stage.size, true);
        let shown = lines(&buffer);
        for cell in &buffer.content {
            let safe = |c: char| !c.is_control() && !('\u{2028}'..='\u{202e}').contains(&c);
            assert!(cell.symbol().chars().all(safe), "{keys}: {cell:?}\n{shown}");
        }
        assert!(shown.contains("\\u{1b}[2J"), "{keys}\n{shown}");
    }
}

#[test]
fn only_turns_near_those_in_sight_are_read() {
    let mut stage = OpenedBrowser::new((80, 20));
    let texts: Vec<String> = (0..1000).map(|turn| format!("message {turn}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    record(&stage.store(), "long", "A long one", &texts);
    stage.begin = Some(SessionId::new("long").unwrap());
    for (keys, seen) in [("<enter>", "message 0"), ("<enter><end>", "message 999")] {
        let browser = stage.press(keys);
        let Some(Screen::Session(screen)) = browser.screen() else {
            panic!("{keys}");
        };
        assert!(screen.page.as_ref().unwrap().rows.len() <= 150);
        assert!(stage.shown(keys).contains(seen));
    }
}

#[test]
fn colours_are_left_away_and_can_be_read_on_any_background() {
    let stage = OpenedBrowser::demo((120, 14));
    let browser = stage.press("<enter>");
    let colours = |with| {
        let buffer = drawn(&browser, stage.size, with);
        let colours = buffer.content.iter().map(|cell| cell.fg);
        colours.collect::<std::collections::HashSet<Color>>()
    };
    assert_eq!(colours(false), [Color::Reset].into());
    let with = colours(true);
    assert!(with.len() > 2, "{with:?}");
    assert!(!with.contains(&Color::Yellow) && !with.contains(&Color::White));
}

#[test]
fn a_session_that_is_gone_is_told_and_left() {
    let mut stage = OpenedBrowser::new((80, 10));
    stage.begin = Some(SessionId::new("gone").unwrap());
    let browser = stage.press("");
    assert!(matches!(browser.screen(), Some(Screen::Sessions(_))));
    assert!(stage.shown("").contains("gone"));
}

#[test]
fn keys_lead_back() {
    let stage = OpenedBrowser::demo((80, 20));
    for keys in [
        "<enter><enter><esc><left>qq",
        "hqdqqq",
        "sx<esc>qq",
        "sx<enter>qqq",
        "?xqq",
    ] {
        assert!(stage.press(keys).is_over, "{keys}");
    }
    for keys in ["q<esc><esc><left>", "/q", "sq", "?q", "uq"] {
        assert!(!stage.press(keys).is_over, "{keys}");
    }
}

#[test]
fn no_key_and_no_size_stops_it() {
    let stage = OpenedBrowser::demo((80, 20));
    let open = |writes| boxed(stage.folder.path(), writes);
    let mut data = Data::new(&open).unwrap();
    let mut browser = Browser::new("agent.db".into(), None, stage.size);
    let keys: Vec<KeyPress> =
        keys_of("<enter><enter><tab><esc><end><left><right><erase><again>jkgGhdurs/?lnpq xcb[]");
    let sizes = [(0, 0), (1, 1), (3, 2), (9, 3), (79, 5), (80, 4), (300, 90)];
    let mut random = 7_u64;
    for _ in 0..3000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let roll = (random >> 33) as usize;
        let size = sizes[roll / 64 % sizes.len()];
        if roll.is_multiple_of(16) {
            browser.resize(size);
        }
        browser.press(keys[roll % keys.len()]);
        fill(&mut browser, &mut data);
        if roll.is_multiple_of(8) {
            let size = (browser.room.width as u16, browser.room.height as u16 + 2);
            drawn(&browser, size, true);
        }
        browser.is_over = false;
    }
}
