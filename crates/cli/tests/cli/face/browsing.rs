//! `browse` while it runs: keys, the screen, and the state of the terminal afterwards.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::Stage;
use super::terminal::Terminal;
use crate::support::{hang, needs, process};

const SIZE: (u16, u16) = (14, 80);

fn browse(stage: &Stage, before: &str) -> Terminal {
    let line = format!(
        "{before} sh -c 'echo $$ > pid; exec $LOOPSTORE browse'; echo exit $?; stty -a; echo over"
    );
    Terminal::run(stage.folder(), SIZE, &line)
}

fn pid(folder: &Path) -> String {
    let read = || fs::read_to_string(folder.join("pid")).unwrap_or_default();
    hang::until("the shell tells its id", || read().ends_with('\n'));
    read().trim().to_owned()
}

/// Checks that the terminal reads lines and echoes input, as before.
fn is_as_before(terminal: Terminal) -> String {
    terminal.wait_for("over");
    let (text, screen) = terminal.end();
    assert!(!screen.alternate_screen(), "{text:?}");
    assert!(!screen.hide_cursor(), "{text:?}");
    let settings = text.rsplit_once("exit ").unwrap().1;
    let set: Vec<&str> = settings.split_whitespace().collect();
    for one in ["icanon", "echo", "isig", "opost"] {
        assert!(set.contains(&one), "{settings}");
    }
    settings.lines().next().unwrap().trim().to_owned()
}

#[test]
fn keys_lead_through_the_screens() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    let stage = Stage::of(&["kite-1", "worker"]);
    let mut terminal = browse(&stage, "");
    let screen = terminal.wait_for("kite-1");
    assert!(screen.alternate_screen() && screen.contents().contains("worker"));
    terminal.press("/kite\r");
    thread::sleep(Duration::from_millis(100));
    terminal.press("\r");
    terminal.wait_for("LOOPS");
    terminal.press("\r\r");
    terminal.wait_for("Will it rain?");
    terminal.press("?");
    terminal.wait_for("press any key");
    terminal.press("\u{3}");
    assert_eq!(is_as_before(terminal), "0");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    for (signal, code) in [("TERM", "143"), ("INT", "130"), ("HUP", "129")] {
        let stage = Stage::of(&["kite-1"]);
        let terminal = browse(&stage, "");
        terminal.wait_for("kite-1");
        process::signal(signal, pid(stage.folder()));
        assert_eq!(is_as_before(terminal), code, "{signal}");
    }
}

/// A failpoint, which only debug builds contain.
#[cfg(debug_assertions)]
#[test]
fn a_panic_gives_the_terminal_back_and_is_told() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    let stage = Stage::of(&["kite-1"]);
    let mut terminal = browse(&stage, "LOOPSTORE_BROKEN=panic");
    terminal.wait_for("kite-1");
    terminal.press("\u{c}");
    terminal.wait_for("over");
    let text = terminal.text();
    assert!(text.contains("a fault that is built in"), "{text:?}");
    assert_eq!(is_as_before(terminal), "101");
}
