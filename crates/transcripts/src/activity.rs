//! The time of the last activity of a session whose messages have no times. It is derived from the files of the
//! session, never from the time of the import.

use std::path::Path;
use std::time::UNIX_EPOCH;

use loopstore::model::Time;
use uuid::Uuid;

use super::{Identity, Origin, SessionHead};

/// The times that an id may contain, in milliseconds since the epoch: the years 2001 to 2100. Numbers outside this
/// range are not read as times.
const PLAUSIBLE: std::ops::Range<i64> = 1_000_000_000_000..4_102_444_800_000;
/// The number of digits of a time in this range.
const DIGITS: usize = 13;
/// The number of characters of a ULID, and the number of its leading characters that encode the time.
const ULID: (usize, usize) = (26, 10);
/// The number of characters of a UUID.
const UUID: usize = 36;

/// Returns the modification time of a file, in milliseconds since the epoch.
pub(super) fn modified_at(path: &Path) -> Option<i64> {
    let modified = std::fs::metadata(path).ok()?.modified().ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// Returns the time of the last activity of a session, from its beginning, its id or else its file. The beginning is
/// preferred: the modification time of a copied file is the time of the copy.
pub(super) fn of_files(head: &SessionHead, from: &Origin) -> Option<String> {
    let created = head.session.created_at.as_ref();
    if let Some(created) = created.and_then(Time::sortable) {
        return Some(created);
    }
    let named = match &head.identity {
        Identity::Own(id) => time_in(id.as_str()),
        Identity::Key(_) | Identity::Series(_) => None,
    };
    let known = [named, from.modified_at].into_iter().flatten().min();
    known.and_then(Time::sortable_from_millis)
}

/// Returns the time that an id contains, in milliseconds since the epoch. Recognised are UUIDs of version 1, 6 and 7
/// (also at the end of a longer id), ULIDs, and numbers of milliseconds.
fn time_in(id: &str) -> Option<i64> {
    let end = id.len().checked_sub(UUID).and_then(|from| id.get(from..));
    if let Some(uuid) = end.and_then(|end| Uuid::try_parse(end).ok()) {
        return uuid_time(&uuid);
    }
    let parts = id.split(|c: char| !c.is_ascii_alphanumeric());
    parts.into_iter().find_map(|part| match part.len() {
        DIGITS => plausible(part.parse().ok()?),
        length if length == ULID.0 => ulid_time(part),
        _ => None,
    })
}

fn uuid_time(uuid: &Uuid) -> Option<i64> {
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let millis = i64::try_from(seconds).ok()?.checked_mul(1000)?;
    plausible(millis + i64::from(nanos / 1_000_000))
}

fn ulid_time(text: &str) -> Option<i64> {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let digit = |byte: u8| {
        let byte = byte.to_ascii_uppercase();
        ALPHABET.iter().position(|one| *one == byte)
    };
    let digits: Option<Vec<usize>> = text.bytes().map(digit).collect();
    let time = digits?.into_iter().take(ULID.1);
    plausible(time.fold(0, |time, digit| {
        time << 5 | i64::try_from(digit).unwrap_or(0)
    }))
}

fn plausible(millis: i64) -> Option<i64> {
    PLAUSIBLE.contains(&millis).then_some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::model::{Session, SessionId};

    #[test]
    fn ids_tell_their_times() {
        for (id, time) in [
            ("1780000000777", 1_780_000_000_777),
            ("task-1780000000777", 1_780_000_000_777),
            ("chat_1780000000777_a1", 1_780_000_000_777),
            ("019e7044-8b09-7abc-8def-0123456789ab", 1_780_000_000_777),
            (
                "thread-019e7044-8b09-7abc-8def-0123456789ab",
                1_780_000_000_777,
            ),
            ("01KSR492R97ZZZZZZZZZZZZZZZ", 1_780_000_000_777),
            ("session_01ksr492r97zzzzzzzzzzzzzzz", 1_780_000_000_777),
            ("2f2d4a8e-4d3c-11ef-9a5b-0242ac120002", 1_722_210_635_664),
        ] {
            assert_eq!(time_in(id), Some(time), "{id}");
        }
        for id in [
            "",
            "weather",
            // Before any agent existed.
            "0000000000001",
            "9999999999999",
            "17800000007771",
            // A random UUID.
            "b2c7b6a0-5f0e-4f2e-9b1a-3c1d2e4f5a6b",
            "ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "abcdefghijklmnopqrstuvwxyz",
            "ä19e6c44-8309-7abc-8def-0123456789a",
        ] {
            assert_eq!(time_in(id), None, "{id}");
        }
    }

    #[test]
    fn what_is_certain_comes_first() {
        let id = SessionId::new("1780000000777").unwrap();
        let mut session = Session::new(id.clone(), "agent");
        session.created_at = None;
        let mut head = SessionHead {
            identity: Identity::Own(id),
            session,
            title: None,
            project: None,
        };
        let mut from = Origin::new("cline", Path::new("no/such/file"));
        assert_eq!(from.modified_at, None);
        let of_id = of_files(&head, &from);
        assert_eq!(of_id.as_deref(), Some("2026-05-28T20:26:40.777Z"));
        // The file was written before the time in the id, so the id does not count.
        from.modified_at = Some(1_700_000_000_000);
        let of_file = Some("2023-11-14T22:13:20.000Z");
        assert_eq!(of_files(&head, &from).as_deref(), of_file);
        from.modified_at = Some(1_790_000_000_000);
        assert_eq!(of_files(&head, &from), of_id);
        head.session.created_at = Some(Time::from_text("2026-01-02T03:04:05+01:00"));
        let created = Some("2026-01-02T02:04:05.000Z");
        assert_eq!(of_files(&head, &from).as_deref(), created);
        head.session.created_at = None;
        head.identity = Identity::Key("0".into());
        from.modified_at = None;
        assert_eq!(of_files(&head, &from), None);
    }
}
