//! Ways out: what a session holds, in the forms that others read.

pub mod provider;
