//! Suggestions for a mistyped name or id.

use std::ops::ControlFlow;

use loopstore::Database;
use loopstore::extend::{self as store, SessionRow, StoreResult, lookup};

/// The maximum number of ids that are compared, and of each kind that are read.
const COMPARED: u32 = 5_000;
/// The maximum number of characters of the given text that are compared.
const LONGEST: usize = 48;
/// The maximum number of suggested names.
const PROPOSED: usize = 3;

/// Returns the names nearest to the given text, the nearest first.
pub fn nearest<S: AsRef<str>>(given: &str, names: &[S]) -> Vec<String> {
    let given: String = given.to_lowercase().chars().take(LONGEST).collect();
    let most = match given.chars().count() {
        0 => return Vec::new(),
        length => (length / 3).clamp(1, 4),
    };
    let names = names.iter().map(AsRef::as_ref);
    let mut near: Vec<(usize, &str)> = names
        .map(|name| (distance(&given, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort();
    near.dedup();
    let names = near.into_iter().map(|(_, name)| name.to_owned());
    names.take(PROPOSED).collect()
}

/// Returns the number of characters that must change until the given text equals the name or its beginning. A text
/// within the name has the distance 1.
fn distance(given: &str, name: &str) -> usize {
    let length = given.chars().count();
    if length > 2 && name.contains(given) {
        return 1;
    }
    let beginnings = (length.saturating_sub(1)..=length + 1).map(|end| {
        let end = name
            .char_indices()
            .nth(end)
            .map_or(name.len(), |(at, _)| at);
        strsim::osa_distance(given, &name[..end])
    });
    beginnings.min().unwrap_or(usize::MAX)
}

/// Returns the ids of sessions nearest to `given`. Of very many sessions only those with a common beginning and the
/// first ones are compared.
pub fn sessions(store: &dyn Database, given: &str) -> StoreResult<Vec<String>> {
    let mut ids = store::read(store, |read| {
        let mut ids = read.session_ids("", COMPARED)?;
        let ends = given.char_indices().map(|(end, _)| end).skip(1);
        for end in ends.take(LONGEST).collect::<Vec<_>>().into_iter().rev() {
            let alike = lookup::sessions_beginning(read, &given[..end], COMPARED)?;
            if !alike.is_empty() {
                ids.extend(alike);
                break;
            }
        }
        Ok::<_, loopstore::StoreError>(ids)
    })?;
    ids.sort();
    ids.dedup();
    let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
    Ok(nearest(given, &ids))
}

/// Returns the ids of a session's loops nearest to `given`.
pub fn loops(store: &dyn Database, session: &SessionRow, given: &str) -> StoreResult<Vec<String>> {
    let loops = store::read(store, |read| read.loops(session.key))?;
    let ids = loops.iter().rev().map(|row| row.loop_id.as_str());
    let ids: Vec<&str> = ids.take(COMPARED as usize).collect();
    Ok(nearest(given, &ids))
}

/// Returns the ids of a session's runs nearest to `given`.
pub fn runs(store: &dyn Database, session: &SessionRow, given: &str) -> StoreResult<Vec<String>> {
    let ids = store::read(store, |read| {
        let mut ids = Vec::new();
        read.runs(session.key, &mut |run| {
            ids.push(run.run_id);
            Ok(match ids.len() < COMPARED as usize {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
        Ok::<_, loopstore::StoreError>(ids)
    })?;
    Ok(nearest(given, &ids))
}

/// Returns the question whether one of these names was meant; `None` without names.
pub fn question(names: &[String]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = names.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_proposed_and_nothing_else() {
        let names = [
            "kite-1",
            "kite-2",
            "Kitchen",
            "parent-7/agent-d1g",
            "v_loops",
        ];
        for (given, near) in [
            ("kiet-", &["kite-1", "kite-2"][..]),
            ("kitehen", &["Kitchen"]),
            ("KITE-1", &["kite-1", "kite-2"]),
            ("agent-d", &["parent-7/agent-d1g"]),
            ("v_lops", &["v_loops"]),
            ("zebra", &[]),
            ("", &[]),
            ("\u{1b}[31m", &[]),
        ] {
            assert_eq!(nearest(given, &names), near, "{given}");
        }
        assert!(nearest(&"x".repeat(100_000), &names).is_empty());
    }

    #[test]
    fn a_question_names_them_all() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(question(&names[..0]), None);
        assert_eq!(question(&names[..1]).unwrap(), "did you mean `a`?");
        assert_eq!(question(&names).unwrap(), "did you mean `a`, `b` or `c`?");
    }
}
