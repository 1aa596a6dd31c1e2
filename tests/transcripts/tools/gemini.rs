//! Sessions of Gemini CLI.

use insta::assert_snapshot;

use crate::tools::recorder::Recorder;

#[test]
fn calls_and_results_come_out_of_the_answer() {
    let recorded = Recorder::of_fixture("gemini-cli", "tide.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session tide-1
      loop m1 Initial Completed
        - note warning
        0 user When is high tide?
        0 assistant Looking. [g1 g2]
        0 toolResult 06:12 <g1 read>
        0 toolResult no such tool <g2 run failed>
        - note info
        1 assistant At 06:12.
      loop m4 Default after m1:1 Running
        0 user And low tide?
        0 assistant  [g3]
    "##);
}

#[test]
fn the_last_writing_of_a_message_counts() {
    let recorded = Recorder::of_fixture("gemini-cli", "ebb.jsonl");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session ebb-1
      loop m1 Initial Completed
        - note session
        0 user List the boats
        - note set
        0 assistant One moment. [h1]
        0 toolResult Gull <h1 ls>
        1 assistant Gull and Tern.
        - note set
    "##);
}
