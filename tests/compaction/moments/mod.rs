//! A context as of an earlier tick equals the context that was built then, whatever came later, for each way of reading
//! loops before the scope and each recent window; and a fork has the context that its parent had.

mod forks;
mod in_flight;
mod manifests;
mod over_time;
