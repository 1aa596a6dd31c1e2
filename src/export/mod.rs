//! Ways out: what a session holds, in the forms that others read.

mod backup;
mod file;
pub mod provider;

pub use backup::{BackupError, backup, is_part_of};
pub use file::WholeFile;
