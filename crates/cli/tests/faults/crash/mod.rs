//! Crashes, power loss and I/O faults: what was acknowledged is there, whole, once, and the store goes
//! on. Nothing of this is in the product: the real program and small driven processes run with
//! `shim.c` between them and their files. Linux only; needs `cc`, as SQLite does.
//!
//! `LOOPSTORE_KILLS=2000` kills more often, `LOOPSTORE_LOSSES=2000` looks at what a disk could hold
//! after every single write, `LOOPSTORE_FAULTS=500` strikes every single call, `LOOPSTORE_SEED=17`
//! takes other samples.
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
