//! Sessions as traces of OpenTelemetry: what each span says, what is left out without content, and that the
//! messages of OTLP accept every line.

mod content;
mod proto;
mod sessions;
mod stage;

use loopstore_testing as support;
