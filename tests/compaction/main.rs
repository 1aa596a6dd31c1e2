//! Compaction: plans and strategies, overlays and their undo, budgets, and contexts as of any tick.

mod activity;
mod budget;
mod concurrent;
mod digest;
mod digest_kept;
mod digest_store;
mod handback;
mod live;
mod moments;
mod overlays;
mod pins;
mod prefix;
mod prompts;
mod replay;
mod rollup;
mod summarize;
mod tiered;

use loopstore_testing as support;
