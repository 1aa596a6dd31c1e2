//! Events of Copilot CLI.

use insta::assert_snapshot;

use crate::tools::recorder::Recorder;

#[test]
fn sub_agents_are_sessions_of_their_own() {
    let recorded = Recorder::of_fixture("copilot-cli", "harbour.jsonl");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session harbour-1/agent-d1 from harbour-1 e3 d1 task
      loop e8 Initial Completed
        0 assistant  [d3]
        0 toolResult 9 masts <d3 look>
        1 assistant Nine.
    session harbour-1
      loop e3 Initial Completed
        - note session.start
        - note system
        0 user <now>09:00</now> | Which ships?
        - note assistant.turn_start
        0 assistant Asking. [d1 d2]
        - note tool.execution_start
        - note subagent.started
        0 toolResult static <d2 radio failed>
        0 toolResult Nine. <d1 task>
        1 assistant Nine ships.
        - note assistant.turn_end
      loop e16 Default after e3:1 Aborted
        0 user Any tugs?
        0 assistant Let me
        - note abort
        - note session.shutdown
      ? compaction in e3@11: summary of 1
    "##);
}
