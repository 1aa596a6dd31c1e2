//! What goes wrong: crashes, power loss, disks that fail, damaged files, hostile input, and many processes
//! at one database.

mod crash;
mod crowd;
mod damage;
mod hostile;
mod replica;
#[path = "../support/mod.rs"]
mod support;
mod watch;
