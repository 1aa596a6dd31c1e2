//! rig's documented contract of its memory traits, and the additions of loopstore.

mod appending;
mod clearing;
mod compacting;
mod contract;
mod demoting;
mod hostile;
mod messages;
mod round_trip;
mod support;

#[path = "../../examples/agent.rs"]
mod agent;

#[test]
fn the_example_runs_to_its_end() {
    agent::main().unwrap();
}
