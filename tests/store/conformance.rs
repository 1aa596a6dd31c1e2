//! The promises of every backend, on SQLite.

use loopstore_testing::conformance;
use loopstore_testing::conformance::FreshStore;

conformance!(sqlite_in_memory, Some(FreshStore::in_memory()));
conformance!(sqlite_on_disk, Some(FreshStore::on_disk()));
