//! The examples run to their end; each says itself what must hold.

#[path = "../../examples/agent.rs"]
mod agent;
#[cfg(feature = "tokio")]
#[path = "../../examples/async_agent.rs"]
mod async_agent;
#[path = "../../examples/compact_and_look.rs"]
mod compact_and_look;
#[path = "../../examples/custom_strategy.rs"]
mod custom_strategy;
#[cfg(feature = "phi-core")]
#[path = "../../examples/from_phi_core.rs"]
mod from_phi_core;
#[path = "../../examples/import_then_replay.rs"]
mod import_then_replay;
#[path = "../../examples/own_summariser.rs"]
mod own_summariser;
#[cfg(feature = "postgres")]
#[path = "../../examples/postgres.rs"]
#[allow(dead_code)]
mod postgres_server;
#[path = "../../examples/record_and_resume.rs"]
mod record_and_resume;
#[path = "../../examples/sql_only.rs"]
mod sql_only;

#[cfg(feature = "postgres")]
use crate::support::server;

#[test]
fn agent_runs_to_its_end() {
    agent::main().unwrap();
}

#[cfg(feature = "tokio")]
#[test]
fn async_agent_runs_to_its_end() {
    async_agent::main().unwrap();
}

#[test]
fn compact_and_look_runs_to_its_end() {
    compact_and_look::main().unwrap();
}

#[test]
fn custom_strategy_runs_to_its_end() {
    custom_strategy::main().unwrap();
}

#[cfg(feature = "phi-core")]
#[test]
fn from_phi_core_runs_to_its_end() {
    from_phi_core::main().unwrap();
}

#[test]
fn import_then_replay_runs_to_its_end() {
    import_then_replay::main().unwrap();
}

#[test]
fn own_summariser_runs_to_its_end() {
    own_summariser::main().unwrap();
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_runs_to_its_end() {
    if let Some(server) = server::server() {
        // The tables are made by the example.
        let address = server.address(&server.database());
        postgres_server::on(&address).unwrap();
        postgres_server::on(&address).unwrap();
    }
}

#[test]
fn record_and_resume_runs_to_its_end() {
    record_and_resume::main().unwrap();
}

#[test]
fn sql_only_runs_to_its_end() {
    sql_only::main().unwrap();
}
