//! What a build showed at a moment is shown again as of that moment, whatever came later, for each
//! way of reading loops before the scope and each recent window; and forks stand as their parent
//! stood.

mod forks;
mod in_flight;
mod over_time;
