//! Faults: crashes, power loss, failing disks, damaged files, hostile input, and many processes on one database.

mod crash;
mod crowd;
mod damage;
mod hostile;
mod replica;
#[path = "../support/mod.rs"]
mod support;
mod watch;
