//! Sessions of ADK.

use insta::assert_snapshot;

use crate::tools::recorder::Recorder;

#[test]
fn responses_are_paired_by_name_and_order() {
    let recorded = Recorder::of_fixture("adk", "orchard.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session orchard-1
      loop o1 Initial Completed
        0 user Pick apples
        0 assistant Picking. [o2/1 o2/2 o2/3]
        0 toolResult {"error":"no scale"} <o2/3 weigh failed>
        0 toolResult {"apples":3} <o2/1 pick>
        0 toolResult {} <o2/2 pick>
        1 assistant Three apples.
      loop o5 Default after o1:1 Running
        0 user Pears?
        - note event
    "##);
}

#[test]
fn newer_versions_name_their_calls() {
    let recorded = Recorder::of_fixture("adk", "vineyard.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session vineyard-1
      loop n1 Initial Completed
        0 user Taste it
        - note event
        0 assistant  [f-1]
        0 toolResult {"result":"dry"} <f-1 sip>
        1 assistant Dry.
    "##);
}
