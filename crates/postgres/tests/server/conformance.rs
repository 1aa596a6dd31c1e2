//! The promises of every backend, on PostgreSQL.

use loopstore_testing::conformance;
use loopstore_testing::conformance::FreshStore;
use loopstore_testing::server;

conformance!(postgres, server::store().map(FreshStore::new));
