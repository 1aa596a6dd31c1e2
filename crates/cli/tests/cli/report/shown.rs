//! Pages in a real browser: they open without an error, their figures are those of the database, and everything that
//! can be clicked can be reached with the keyboard.

use loopstore::*;

use crate::commands::stage::Stage;
use crate::report::browser::Browser;
use crate::report::hostile::{MARKUP, hostile, hostile_compactions};
use crate::report::size;

fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn no_errors(browser: &Browser) {
    assert!(browser.errors.is_empty(), "{:#?}", browser.errors);
}

/// One browser for all pages, since starting it takes longer than using it.
#[test]
fn a_page_in_a_browser() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    shows_the_figures_and_a_turn_with_what_stands_for_it(&mut browser);
    shows_what_was_edited_and_why(&mut browser);
    reads_as_a_conversation(&mut browser);
    can_be_used_with_the_keyboard(&mut browser);
    keeps_markup_as_text(&mut browser);
    can_be_read_light_and_dark_wide_and_narrow(&mut browser);
    opens_at_once_and_draws_what_is_in_sight(&mut browser);
    tells_what_compactions_forgot(&mut browser);
}

fn compacted() -> Stage {
    let stage = Stage::new();
    compact_and_report(&stage);
    stage
}

fn compact_and_report(stage: &Stage) {
    assert_eq!(stage.say("compact work --max-tokens 9000").code, 0);
    assert_eq!(stage.say("report work").code, 0);
}

fn shows_the_figures_and_a_turn_with_what_stands_for_it(browser: &mut Browser) {
    let stage = Stage::new();
    let project = Store::from(stage.store()).session("work").unwrap();
    project.set_project("/work/kite").unwrap();
    compact_and_report(&stage);
    browser.visit(&stage.path("work.html"));
    let work = SessionId::new("work").unwrap();
    let store = stage.store();
    let context = build_context_from_session(&store, &work, &BuildOptions::default()).unwrap();
    let row = store.session_view(&work).unwrap().session;
    let facts = browser.value(
        "Object.fromEntries([...document.querySelectorAll('#facts div')]
             .map(d => [d.children[0].textContent, d.children[1].textContent]))",
    );
    for (name, column) in [
        ("loops", "loops"),
        ("turns", "turns"),
        ("messages", "messages"),
    ] {
        let told = number(u64::try_from(row.number(column).unwrap()).unwrap());
        assert_eq!(facts[name].as_str(), Some(&*told), "{name}");
    }
    assert_eq!(
        facts["tokens in context"].as_str(),
        Some(&*number(context.tokens))
    );
    assert_eq!(browser.text("#title"), "Repair the build");
    assert!(
        browser
            .text("#about")
            .contains("in /work/kite · first asked “ask what is broken”")
    );
    assert!(browser.text("#tree").contains("completed  build it"));
    assert_eq!(
        browser.value("document.querySelectorAll('#runs tbody tr').length"),
        1
    );
    let before = store
        .query("SELECT tokens_before FROM v_compaction_runs")
        .unwrap()
        .records();
    let before = u64::try_from(before[0].number("tokens_before").unwrap()).unwrap();
    assert!(browser.text("#runs").contains(&number(before)));

    // The page first shows a block: its text next to the originals.
    browser.wait("document.querySelector('#seen').textContent.includes('Working state')");
    let headings = "[...document.querySelectorAll('#seen .document h4')].map(h => h.textContent)";
    assert_eq!(browser.value(headings)[0], "Task");
    assert!(browser.value("document.querySelectorAll('#seen .document a').length") != 0);
    browser.wait("document.querySelector('#recorded').textContent.includes('Turn 0 of: ask')");
    // A document of several loops names them, and its turns are theirs.
    let text =
        r"[Working state of the loops through test]\n- build t1: t0, nobody t1\nid: a (ask t0)";
    let own = "index.loops.findIndex(loop => loop.loop_id === 'test')";
    let links = format!("[...documentOf('{text}', {own}).querySelectorAll('a')].map(a => a.title)");
    let named = ["Show loop build, turn 1", "Show loop ask, turn 0"];
    assert_eq!(browser.value(&links), serde_json::json!(named));
    let counted = "counted('L1..L2', 'run-0..run-1').join(' ')";
    assert_eq!(browser.value(counted), "L1,run-0 L2,run-1");
    // A click near the end of the ribbon shows a turn near the end of the session.
    browser.click_at("#ribbon", (0.93, 0.3));
    browser.wait("document.querySelector('#recorded').textContent.includes('of: test it')");
    assert!(
        browser
            .text("#reader-what")
            .starts_with("loop test, turn 1")
    );
    browser.click("#earlier");
    browser.click_at("#curve", (0.06, 0.5));
    browser
        .wait("document.querySelector('#reader-what').textContent.startsWith('loop ask, turn 0')");
    browser.click("#later");
    browser
        .wait("document.querySelector('#reader-what').textContent.startsWith('loop ask, turn 1')");
    browser.click("#whole");
    browser.wait("document.querySelector('#reader-what').textContent.startsWith('Block 1')");
    browser.picture("work");
    no_errors(browser);
}

fn shows_what_was_edited_and_why(browser: &mut Browser) {
    let stage = Stage::new();
    assert_eq!(stage.say("drop work ask:0:2 --reason noise").code, 0);
    let replaced = ["replace", "work", "ask:1:4", "--text", "as I meant it"];
    assert_eq!(stage.run(&replaced).code, 0);
    assert_eq!(stage.say("report work").code, 0);
    browser.visit(&stage.path("work.html"));
    browser.wait("document.querySelector('#runs').textContent.includes('noise')");
    assert!(browser.text("#legend").contains("edited"));
    assert!(browser.text("#facts").contains("runs of edits"));
    let show = |turn: u32| {
        let loop_at = "index.loops.findIndex(loop => loop.loop_id === 'ask')";
        format!("(showTurn({loop_at}, {turn}), 1)")
    };
    let pane = |id: &str, text: &str| {
        format!("document.querySelector('{id}').textContent.includes('{text}')")
    };
    browser.value(&show(0));
    browser.wait(&pane("#seen", "The message was removed by run "));
    browser.wait(&pane("#recorded", "line 1 of the file"));
    assert_eq!(browser.value(&pane("#seen", "line 1 of the file")), false);
    browser.value(&show(1));
    browser.wait(&pane("#seen", "as I meant it"));
    browser.wait(&pane("#recorded", "line 1 of the file"));
    no_errors(browser);
}

fn reads_as_a_conversation(browser: &mut Browser) {
    let stage = Stage::empty();
    let store = Store::from(stage.store());
    let chat = store.session("lamp").unwrap();
    let edit =
        serde_json::json!({"file_path": "lamp.py", "old_string": "a\nb", "new_string": "a\nB"});
    chat.append([
        Message::user("Mend the lamp"),
        Message::assistant("I **edit** `b`.").with_tool_call("c1", "Edit", edit),
        Message::tool_result("c1", "The file was changed."),
        Message::assistant("Done."),
    ])
    .unwrap();
    drop(store);
    assert_eq!(stage.say("report lamp").code, 0);
    browser.visit(&stage.path("lamp.html"));
    browser.wait("document.querySelector('#conversation').textContent.includes('Done.')");
    let all = |what: &str| format!("document.querySelectorAll('#conversation {what}').length");
    assert_eq!(browser.value(&all("details[open]")), 0);
    assert_eq!(
        browser.text("#conversation summary .state"),
        "1 line, 21 signs"
    );
    assert_eq!(browser.text("#conversation .markdown b"), "edit");
    // The change is shown below the folded call.
    assert_eq!(browser.text("#conversation .diff .added"), "+ B\n");
    assert_eq!(browser.text("#conversation .diff .gone"), "- b\n");
    browser.click("#conversation summary");
    browser.wait(&format!("{} === 1", all("details[open]")));
    browser.wait(&format!("{} > 0", all("details pre")));
    // An argument is text, not JSON with escapes.
    let arguments =
        "[...document.querySelectorAll('#conversation details pre')].map(e => e.textContent)";
    let arguments = browser.value(arguments);
    for text in ["lamp.py", "a\nb", "a\nB", "The file was changed."] {
        let is_shown = arguments.as_array().unwrap().iter().any(|one| one == text);
        assert!(is_shown, "{text:?} in {arguments}");
    }
    browser.click("#open-calls");
    browser.click("#open-calls");
    browser.wait(&format!("{} === 0", all("details[open]")));
    no_errors(browser);
}

fn can_be_used_with_the_keyboard(browser: &mut Browser) {
    let stage = compacted();
    browser.visit(&stage.path("work.html"));
    browser.focus("#ribbon");
    browser.press("Home");
    browser.press("ArrowRight");
    let told = browser.value("document.querySelector('#ribbon').getAttribute('aria-valuetext')");
    assert!(
        told.as_str().unwrap().starts_with("loop ask, turn 1: "),
        "{told}"
    );
    browser.press("Enter");
    browser
        .wait("document.querySelector('#reader-what').textContent.startsWith('loop ask, turn 1')");
    browser.press("b");
    browser.wait("document.querySelector('#reader-what').textContent.startsWith('Block')");
    browser.press("PageDown");
    let state = browser.text("#ribbon-now");
    assert!(!state.starts_with("loop ask, turn 1:"), "{state}");

    // A loop outside of the current chain can be read in the tree.
    browser.focus("#tree");
    let rows = browser
        .value("document.querySelectorAll('#tree .row').length")
        .as_u64()
        .unwrap();
    for _ in 0..rows {
        browser.press("ArrowDown");
        let at = browser.value(
            "document.getElementById(document.querySelector('#tree')
                 .getAttribute('aria-activedescendant')).textContent",
        );
        if at.as_str().unwrap().contains("○ try") {
            break;
        }
    }
    browser.press("Enter");
    browser.wait("document.querySelector('#recorded').textContent.includes('Turn 0 of: try it')");
    assert_eq!(browser.value("document.activeElement.id"), "reader");

    browser.focus("#find");
    browser.write("TURN 13 OF");
    browser.press("Enter");
    browser.wait("document.querySelector('#found').textContent === '1 message'");
    browser.wait("document.activeElement.id === 'hits'");
    browser.press("ArrowDown");
    browser.press("Enter");
    browser.wait(
        "document.querySelector('#reader-what').textContent.startsWith('loop test, turn 13')",
    );
    browser.wait("document.querySelector('#recorded mark')?.textContent === 'Turn 13 of'");
    browser.focus("#calls");
    browser.press("End");
    browser.press("Enter");
    browser.wait("document.querySelector('#recorded .here b').textContent === 'assistant'");
    no_errors(browser);
}

fn keeps_markup_as_text(browser: &mut Browser) {
    let stage = Stage::empty();
    hostile(&stage);
    let json = stage.json("report --all -o pages");
    let file = json["sessions"][0]["file"].as_str().unwrap();
    browser.visit(&stage.path("pages/index.html"));
    assert_eq!(
        browser.value("document.querySelectorAll('#sessions img').length"),
        0
    );
    let shown = MARKUP.replace('\u{1b}', "\u{241b}");
    assert_eq!(browser.text("#sessions a"), shown);
    assert!(
        browser
            .text("#sessions .soft")
            .ends_with(&format!(" · {shown}"))
    );
    browser.visit(&stage.path("pages").join(file));
    assert_eq!(browser.text("#title"), shown);
    assert!(browser.text("#about").contains(&format!("in {shown}")));
    browser.click("#tree .row");
    browser.wait("document.querySelectorAll('#recorded .message').length === 4");
    assert!(browser.text("#recorded").contains(&shown));
    assert!(browser.text("#calls").contains(&shown));
    browser.focus("#find");
    browser.write("<img src=x onerror");
    browser.wait("document.querySelector('#found').textContent === '4 messages'");
    let hurt = "[typeof window.hurt, document.querySelectorAll('img').length]";
    assert_eq!(browser.value(hurt), serde_json::json!(["undefined", 0]));
    let text = r"[Working state]\n## <img src=x>\n- t0: <b>x</b> `<i>`\n> <u>q</u>\nid: <b> (t0)";
    let mut parts = |tags: &str| {
        let script = format!("documentOf('{text}', 0).querySelectorAll('{tags}').length");
        browser.value(&script)
    };
    assert_eq!(parts("img, i, u"), 0);
    assert_eq!(parts("h4, li, blockquote, code"), 5);
    assert!(
        !browser
            .value("document.title")
            .as_str()
            .unwrap()
            .contains('\u{1b}')
    );
    no_errors(browser);
}

fn can_be_read_light_and_dark_wide_and_narrow(browser: &mut Browser) {
    let stage = compacted();
    let mut colours = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.visit(&stage.path("work.html"));
        let style = "(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))";
        colours.push(browser.value(style));
        browser.picture(scheme);
    }
    assert_ne!(colours[0], colours[1]);
    for width in [400, 1900] {
        browser.resize(width, 900);
        let across = "document.documentElement.scrollWidth <= innerWidth";
        browser.wait(&format!("innerWidth === {width} && {across}"));
        let curve = "document.querySelector('#curve svg').getBoundingClientRect().width";
        browser.wait(&format!(
            "Math.abs({curve} - document.querySelector('#curve').clientWidth) < 2"
        ));
        browser.picture(&format!("wide-{width}"));
    }
    no_errors(browser);
}

fn opens_at_once_and_draws_what_is_in_sight(browser: &mut Browser) {
    let stage = Stage::empty();
    size::long(&stage, size::loops(), 50, 12);
    stage.say("compact long --max-tokens 20000");
    assert_eq!(stage.say("report long").code, 0);
    let took = browser.visit(&stage.path("long.html"));
    println!("opened in {took:?}");
    browser.wait("document.querySelectorAll('#recorded .message').length > 0");
    let nodes = browser
        .value("document.querySelectorAll('*').length")
        .as_u64()
        .unwrap();
    assert!(nodes < 3000, "{nodes} elements");
    // The end of a list is rendered when it is scrolled to.
    browser.focus("#tree");
    browser.press("End");
    let last = format!("loop-{}", size::loops() - 1);
    browser.wait(&format!(
        "document.querySelector('#tree').textContent.includes('{last}')"
    ));
    browser.focus("#find");
    browser.write(&format!("turn 49 of: {} asks", size::loops() - 1));
    browser.wait("document.querySelector('#found').textContent === '1 message'");
    no_errors(browser);
}

fn tells_what_compactions_forgot(browser: &mut Browser) {
    let stage = Stage::empty();
    let orchard = crate::support::root::fixture("eval/orchard.jsonl");
    let orchard = orchard.to_str().unwrap();
    let said = stage.say(&format!("eval compactions {orchard} --html forgotten.html"));
    assert_eq!(said.code, 0, "{said}");
    browser.visit(&stage.path("forgotten.html"));
    browser.wait("document.querySelectorAll('#details section').length === 1");
    let facts = browser.text("#facts");
    for part in [
        "values needed",
        "held by the recorded summary",
        "files read again",
    ] {
        assert!(facts.contains(part), "{facts}");
    }
    let details = browser.text("#details");
    for part in ["Needed afterwards, and gone", "What loopstore hands back"] {
        assert!(details.contains(part), "{details}");
    }
    no_errors(browser);
    let mut page = Vec::new();
    loopstore_report::write_compactions(&hostile_compactions(), &mut page).unwrap();
    std::fs::write(stage.path("hostile.html"), page).unwrap();
    browser.visit(&stage.path("hostile.html"));
    browser.wait("document.querySelectorAll('#details section').length === 1");
    assert_eq!(browser.value("window.hurt === undefined"), true);
    assert!(browser.text("#details").contains("window.hurt = 1"));
    no_errors(browser);
}
