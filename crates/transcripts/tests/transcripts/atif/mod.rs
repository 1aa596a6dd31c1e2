//! ATIF: foreign trajectories become sessions, and a session that is written as a trajectory comes back with its
//! overlays.

mod bad;
mod foreign;
mod models;
mod omitted;
mod same;
mod stage;
