//! The address of a turn or a message on the command line: `LOOP:TURN`, `LOOP:TURN:SEQ`, `LOOP:TURN:SEQ:PART`.

use loopstore::Database;
use loopstore::extend::{LoopRow, SessionRow};
use loopstore_terminal::select::{self, Unknown};

/// An address: a loop, and the numbers after its id, the turn first.
pub struct Address {
    /// The loop.
    pub row: LoopRow,
    /// The turn, then the sequence of the message and its part if they were given.
    pub numbers: Vec<u32>,
}

/// Finds the loop of an address with at most `most` numbers. Returns `None` if the text is no address. The id of a loop
/// may contain colons: if several readings name a loop, a whole id is preferred to a prefix.
pub fn find(
    store: &dyn Database,
    session: &SessionRow,
    text: &str,
    most: usize,
) -> Result<Option<Address>, Unknown> {
    let mut found: Option<Address> = None;
    let mut unknown = None;
    for count in 1..=most {
        let Some((loop_id, numbers)) = reading(text, count) else {
            break;
        };
        match select::loop_row(store, session, loop_id) {
            Ok(row) if found.is_none() || row.loop_id.as_str() == loop_id => {
                found = Some(Address { row, numbers });
            }
            Ok(_) => {}
            Err(error) => unknown = Some(error),
        }
    }
    match (found, unknown) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

/// Reads the last `count` numbers of an address.
fn reading(text: &str, count: usize) -> Option<(&str, Vec<u32>)> {
    let mut numbers = Vec::with_capacity(count);
    let mut rest = text;
    for _ in 0..count {
        let (before, number) = rest.rsplit_once(':')?;
        numbers.push(number.parse().ok()?);
        rest = before;
    }
    numbers.reverse();
    (!rest.is_empty()).then_some((rest, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_read_from_the_end() {
        assert_eq!(reading("a:1:2", 1), Some(("a:1", vec![2])));
        assert_eq!(reading("a:1:2", 2), Some(("a", vec![1, 2])));
        for (text, count) in [("a:1:2", 3), (":1", 1), ("a:x", 1), ("a:-1", 1), ("a", 1)] {
            assert_eq!(reading(text, count), None, "{text}");
        }
        assert_eq!(reading("a:99999999999", 1), None);
    }
}
