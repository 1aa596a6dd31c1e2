//! Imports the session files of phi-core into loopstore, and uses its `SessionStore` trait over the database:
//! `cargo run -p loopstore-phi --example from_phi_core`.

use std::error::Error;
use std::path::Path;

use loopstore::*;
use loopstore_phi::PhiSessionStore;
use loopstore_transcripts::{ImportOptions, import_paths};
// Renamed: loopstore has a trait of the same name.
use phi_core::session::SessionStore as PhiStore;

async fn migrate() -> Result<(), Box<dyn Error>> {
    // Imports the files that phi-core wrote. Unknown fields in them are kept with each record.
    let store = SqliteStore::in_memory()?;
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/phi-core");
    let report = import_paths(&store, &[files], &ImportOptions::default(), &mut |_| {})?;
    println!("{} sessions came in", report.sessions.len());

    // From now on the program's own code is unchanged, on another store.
    let sessions = PhiSessionStore::new(Store::from(store).into());
    for id in sessions.list_ids().await? {
        let session = sessions.load(&id).await?;
        println!("{id}: {} loops", session.loops.len());
    }
    Ok(())
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(migrate())
}
