//! Runs the example.

#[path = "../../examples/from_phi_core.rs"]
mod from_phi_core;

#[test]
fn from_phi_core_runs_to_its_end() {
    from_phi_core::main().unwrap();
}
