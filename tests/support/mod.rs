//! What several test programs use. Each includes all of it and uses a part, hence the allowance.
#![allow(dead_code)]

pub mod amount;
pub mod archive;
pub mod conversations;
pub mod encryption;
pub mod events;
pub mod hang;
pub mod histories;
pub mod http_server;
pub mod keyed;
pub mod letters;
pub mod needs;
pub mod plain;
pub mod process;
pub mod proof;
pub mod provider_faults;
pub mod recording;
pub mod removal;
pub mod requests;
pub mod root;
pub mod secrets;
