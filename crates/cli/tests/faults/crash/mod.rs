//! Crashes, power loss and I/O errors: acknowledged writes are stored, whole and once, and the store can be used again.
//! The product contains no code for this: the real program and small test processes run with `shim.c` between them and
//! their files. Linux only; needs `cc`, as SQLite does.
//!
//! `LOOPSTORE_KILLS=2000` kills more often, `LOOPSTORE_LOSSES=2000` checks the possible states of a disk after each
//! single write, `LOOPSTORE_FAULTS=500` makes every single call fail, and `LOOPSTORE_SEED=17` selects other samples.
#![cfg(target_os = "linux")]

mod clock;
mod commands;
mod disk;
mod faults;
mod hooks;
mod killed;
mod places;
mod power;
mod shim;
mod stage;
