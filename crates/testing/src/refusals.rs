//! The messages of the schema's triggers.

/// The schema of SQLite. A trigger that both backends have has the same message in both.
const SCHEMA: &str = include_str!("../../../migrations/sqlite/V1__store.sql");

/// Returns true if an error has the message of a trigger that refuses a change; another error would not be the
/// trigger's doing.
pub fn is_of_a_trigger(error: &str) -> bool {
    let messages = SCHEMA.split("RAISE(").skip(1);
    messages
        .filter_map(|rest| rest.split('\'').nth(1))
        .any(|message| error.contains(message))
}
