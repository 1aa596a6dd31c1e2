//! The number of trials of a test: few in a plain run, more if `LOOPSTORE_LONG` is set, and any number with the
//! test's own variable (`LOOPSTORE_KILLS=1000`).

/// The factor of a long run.
const LONGER: u64 = 5;

/// Returns true if a long run is requested.
pub fn is_long() -> bool {
    std::env::var_os("LOOPSTORE_LONG").is_some()
}

/// Returns the number that the variable holds, or the one of a plain or long run.
pub fn amount(variable: &str, plain: u64) -> u64 {
    match from_variable(variable) {
        Some(number) => number,
        None if is_long() => plain * LONGER,
        None => plain,
    }
}

/// Returns the number that the variable holds.
pub fn from_variable(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}
