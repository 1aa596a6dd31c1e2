//! Long output goes through a pager, only at a terminal.

use super::Stage;
use super::terminal::Terminal;
use crate::support::needs;

const SIZE: (u16, u16) = (10, 90);

fn stage() -> Stage {
    let ids: Vec<String> = (0..40).map(|at| format!("s-{at:02}")).collect();
    Stage::of(&ids.iter().map(String::as_str).collect::<Vec<_>>())
}

fn ended(stage: &Stage, line: &str) -> String {
    let line = format!("{line}; echo exit $?");
    Terminal::run(stage.folder(), SIZE, &line).end().0
}

#[test]
fn what_is_longer_than_the_screen_goes_through_the_pager() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    let stage = stage();
    let paged = ended(&stage, "LOOPSTORE_PAGER='sed s/^/P/' $LOOPSTORE sessions");
    assert!(
        paged.contains("PSESSION") && paged.contains("Ps-00"),
        "{paged}"
    );
    assert!(paged.contains("exit 0"));
    let of_all = ended(&stage, "PAGER='sed s/^/Q/' $LOOPSTORE sessions");
    assert!(of_all.contains("QSESSION"), "{of_all}");
}

#[test]
fn what_fits_and_what_is_for_programs_does_not() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    let stage = stage();
    for line in [
        "$LOOPSTORE show s-01",
        "$LOOPSTORE sessions --json",
        "$LOOPSTORE sessions --no-pager",
        "$LOOPSTORE context s-01 --format openai",
        "$LOOPSTORE sessions | tail -n 30",
        "LOOPSTORE_PAGER= $LOOPSTORE sessions",
        "TERM=dumb $LOOPSTORE sessions",
    ] {
        let text = ended(&stage, &format!("export PAGER='sed s/^/PP/'; {line}"));
        assert!(
            !text.contains("PP") && text.contains("exit 0"),
            "{line}: {text}"
        );
    }
}

#[test]
fn who_quits_early_sees_no_error() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    let stage = stage();
    let text = ended(&stage, "PAGER='head -n 2' $LOOPSTORE sessions");
    assert!(
        text.contains("SESSION") && text.contains("exit 0"),
        "{text}"
    );
    // The output is larger than the buffer of the pipe, so that writing fails.
    let query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 100000)
        SELECT i FROM n";
    let text = ended(&stage, &format!("PAGER=true $LOOPSTORE sql '{query}'"));
    assert!(text.contains("exit 0") && !text.contains("error"), "{text}");
}

#[test]
fn less_shows_a_screen_and_ctrl_c_ends_neither() {
    if needs::missing(&needs::SCRIPT) || needs::missing(&needs::LESS) {
        return;
    }
    let stage = stage();
    // Otherwise Ctrl-C would end the shell too.
    let line = "trap : INT; $LOOPSTORE sessions; echo exit $?";
    let mut terminal = Terminal::run(stage.folder(), SIZE, line);
    let screen = terminal.wait_for("SESSION").contents();
    assert!(!screen.contains("exit"), "{screen}");
    terminal.press("\u{3}");
    // The terminal discards input until the signal has arrived.
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.press("G");
    terminal.wait_for("s-00");
    terminal.press("q");
    let (text, _) = terminal.end();
    assert!(text.contains("exit 0"), "{text}");
}

#[test]
fn without_less_the_output_comes_all_the_same() {
    if needs::missing(&needs::SCRIPT) {
        return;
    }
    let stage = stage();
    let text = ended(&stage, "PATH=/nowhere $LOOPSTORE sessions");
    assert!(text.contains("s-00") && text.contains("exit 0"), "{text}");
}
