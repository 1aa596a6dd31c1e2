//! The targets of an edit as people type them.

use loopstore::extend::{SessionRow, StoreError};
use loopstore::{Database, EditRefusal, EditTarget};
use loopstore_terminal::{CliError, amount, select, text};

use crate::address;

/// The targets of a command.
pub struct GivenTargets {
    /// The targets in order.
    pub targets: Vec<EditTarget>,
    /// The texts that are read as the id of a call since no loop has their name, with the reason.
    calls: Vec<CliError>,
}

impl GivenTargets {
    /// Reads targets. A text that names no loop is the id of a tool call, which may contain colons.
    pub fn find(
        store: &dyn Database,
        session: &SessionRow,
        given: &[String],
    ) -> Result<Self, CliError> {
        let mut found = Self {
            targets: Vec::with_capacity(given.len()),
            calls: Vec::new(),
        };
        for text in given {
            let target = match target(store, session, text) {
                Ok(target) => target,
                Err(error) if text.contains(':') => {
                    found.calls.push(error);
                    EditTarget::Call(text.clone())
                }
                Err(error) => return Err(error),
            };
            found.targets.push(target);
        }
        Ok(found)
    }

    /// Returns the error of an edit. If a text was read as the id of a call that does not exist, it is the reason why
    /// the text names no message.
    pub fn explain(mut self, error: StoreError) -> CliError {
        let is_unknown = matches!(
            &error,
            StoreError::EditRefused(EditRefusal::NotOnChain { .. } | EditRefusal::NotEdited)
        );
        match is_unknown && !self.calls.is_empty() {
            true => self.calls.swap_remove(0),
            false => error.into(),
        }
    }
}

fn target(store: &dyn Database, session: &SessionRow, given: &str) -> Result<EditTarget, CliError> {
    if given.is_empty() {
        return Err(unreadable(given));
    }
    let Some((loop_id, last)) = given.rsplit_once(':') else {
        return Ok(EditTarget::Call(given.to_owned()));
    };
    if last.parse::<u32>().is_err() {
        let range = amount::turns(last).map_err(|_| unreadable(given))?;
        if loop_id.is_empty() {
            return Err(unreadable(given));
        }
        if range.0 > range.1 {
            let why = format!("`{}`: the range ends before it begins", text::line(given));
            return Err(CliError::Usage(why));
        }
        let row = select::loop_row(store, session, loop_id)?;
        return Ok(EditTarget::Turns(row.core.loop_id, range.0..=range.1));
    }
    let found = address::find(store, session, given, 3)?.ok_or_else(|| unreadable(given))?;
    let loop_id = found.row.core.loop_id;
    Ok(match found.numbers[..] {
        [turn, seq, part] => EditTarget::Part(loop_id, turn, seq, part),
        [turn, seq] => EditTarget::Message(loop_id, turn, seq),
        [turn] => EditTarget::Turns(loop_id, turn..=turn),
        _ => return Err(unreadable(given)),
    })
}

fn unreadable(given: &str) -> CliError {
    CliError::Usage(format!(
        "`{}` is not a message; expected LOOP:TURN, LOOP:TURN..TURN, LOOP:TURN:SEQ, LOOP:TURN:SEQ:PART or the id \
         of a tool call",
        text::line(given)
    ))
}

/// Reads an age in turns: `20` or `20-turns`.
pub fn age(given: &str) -> Result<u32, String> {
    let number = ["-turns", "-turn"]
        .iter()
        .find_map(|unit| given.strip_suffix(unit));
    let number = number.unwrap_or(given).parse();
    number.map_err(|_| {
        format!(
            "`{}` is not a number of turns; expected 20 or 20-turns",
            text::line(given)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_are_turns() {
        assert_eq!(
            (age("20"), age("20-turns"), age("1-turn")),
            (Ok(20), Ok(20), Ok(1))
        );
        for text in ["", "-turns", "20-days", "-1", "99999999999"] {
            assert!(age(text).is_err(), "{text}");
        }
    }
}
