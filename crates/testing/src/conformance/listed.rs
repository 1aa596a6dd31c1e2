//! The list of sessions in pages: all pages together are the whole list, in its order.

use loopstore::extend::session::{SessionLabels, hide, label};
use loopstore::extend::sqlite::Record;
use loopstore::{Database, SessionCursor, SessionFilter};
use loopstore_admin::retention::{EraseRequest, erase};

use super::*;

/// Times of many sessions: few different ones, and none.
const TIMES: [Option<&str>; 6] = [
    Some("2026-01-02T12:00:00Z"),
    None,
    Some("2026-01-01T12:00:00Z"),
    Some("2026-01-02T12:00:00Z"),
    Some(""),
    Some("2026-01-02T13:00:00+01:00"),
];

fn fill(store: &dyn Database, count: usize) -> Vec<SessionKey> {
    write(store, |write| {
        let mut keys = Vec::new();
        for at in 0..count {
            let id = SessionId::new(format!("session-{at}")).unwrap();
            let source = (at % 3 == 0).then(|| "codex".to_owned());
            let key = session::create_session(write, &Session::new(id, "agent"), None, source)?;
            let project = (at % 4 == 0).then(|| "/home/ann/Garden".to_owned());
            let title = (at % 5 == 0).then(|| format!("Plant tree {at}"));
            label(write, key, SessionLabels { title, project })?;
            let mut row = write.session_by_key(key)?;
            row.last_active_at = TIMES[at * 7 % 11 % TIMES.len()].map(str::to_owned);
            write.touch_session(&(&row).into())?;
            keys.push(key);
        }
        Ok(keys)
    })
    .unwrap()
}

fn listed(store: &dyn Database, filter: &SessionFilter) -> Vec<(SessionCursor, Record)> {
    store.listed_sessions(filter).unwrap()
}

fn ids(rows: &[(SessionCursor, Record)]) -> Vec<String> {
    let id = |(_, row): &(_, Record)| row.text("session_id").unwrap();
    rows.iter().map(id).collect()
}

/// Returns all pages of a list, each of at most `rows` rows.
fn pages(
    store: &dyn Database,
    filter: &SessionFilter,
    rows: usize,
) -> Vec<(SessionCursor, Record)> {
    let mut page = SessionFilter {
        limit: Some(rows),
        ..filter.clone()
    };
    let mut all = Vec::new();
    loop {
        let mut found = listed(store, &page);
        assert!(found.len() <= rows);
        // The cursor as a client sends it back.
        page.after = found
            .last()
            .map(|(place, _)| place.to_string().parse().unwrap());
        let is_end = found.len() < rows;
        all.append(&mut found);
        if is_end || page.after.is_none() {
            return all;
        }
    }
}

/// Returns the order of the list, computed without it.
fn in_order(store: &dyn Database) -> Vec<String> {
    let rows = read(store, |read| read.sessions()).unwrap();
    rows.iter().map(|row| row.session_id.to_string()).collect()
}

fn same_in_every_way(store: &dyn Database, filter: &SessionFilter, sizes: &[usize]) -> usize {
    let whole = listed(store, filter);
    for rows in sizes {
        assert_eq!(pages(store, filter, *rows), whole, "pages of {rows}");
    }
    let borders = [0, 1, 2, whole.len() / 2, whole.len() - 1, whole.len()];
    for offset in borders.into_iter().chain([whole.len() + 1, usize::MAX]) {
        for limit in [Some(0), Some(1), Some(3), None] {
            let slice = whole.iter().skip(offset).take(limit.unwrap_or(usize::MAX));
            let slice: Vec<_> = slice.cloned().collect();
            let part = SessionFilter {
                offset,
                limit,
                ..filter.clone()
            };
            assert_eq!(listed(store, &part), slice, "{limit:?} after {offset}");
            // The same list, counted from a position.
            let (first, rest) = whole.split_first().unwrap();
            let part = SessionFilter {
                after: Some(first.0.clone()),
                ..part
            };
            let slice = rest.iter().skip(offset).take(limit.unwrap_or(usize::MAX));
            let slice: Vec<_> = slice.cloned().collect();
            assert_eq!(listed(store, &part), slice, "{limit:?} after {offset} more");
        }
    }
    whole.len()
}

pub fn pages_of_sessions_hold_each_once_and_in_order(store: &dyn Database) {
    assert_eq!(listed(store, &SessionFilter::default()), []);
    let keys = fill(store, 40);
    add(store, keys[3], "Will it rain?");
    let all = SessionFilter::default();
    assert_eq!(same_in_every_way(store, &all, &[1, 2, 7, 39, 40, 41]), 40);
    let rows = listed(store, &all);
    assert_eq!(ids(&rows), in_order(store));
    // A row has the columns of the view, in its order.
    let view = "SELECT * FROM v_sessions WHERE session_id = 'session-3'";
    let view = store.query_within(view, sqlite::QueryLimits::default());
    let row = rows
        .iter()
        .find(|(_, row)| row.text("session_id").as_deref() == Some("session-3"));
    assert_eq!(view.unwrap().records()[0], row.unwrap().1);
    assert_eq!(row.unwrap().1.number("messages"), Some(1));
}

fn add(store: &dyn Database, session: SessionKey, prompt: &str) {
    let record = LoopRecord::new(loop_id(session.get() as usize), None);
    write(store, |write| {
        let key = session::create_loop(write, session, &record)?;
        let message = NewMessage::from(AgentMessage::from(Message::user(prompt)));
        append::append(write, key, vec![message], store.counter())
    })
    .unwrap();
}

pub fn a_list_longer_than_what_is_read_at_once_is_whole(store: &dyn Database) {
    fill(store, 530);
    let all = SessionFilter::default();
    let whole = ids(&listed(store, &all));
    assert_eq!(whole, in_order(store));
    assert_eq!(ids(&pages(store, &all, 100)), whole);
    assert_eq!(ids(&pages(store, &all, 256)), whole);
    for (offset, limit) in [(250, 20), (256, 256), (255, 300), (500, 100)] {
        let part = SessionFilter {
            offset,
            limit: Some(limit),
            ..all.clone()
        };
        let slice: Vec<_> = whole.iter().skip(offset).take(limit).cloned().collect();
        assert_eq!(ids(&listed(store, &part)), slice);
    }
    // One row in three hundred matches.
    let text = Some("session-529".to_owned());
    assert_eq!(
        ids(&listed(store, &SessionFilter { text, ..all })),
        ["session-529"]
    );
}

pub fn a_filtered_list_comes_in_pages_too(store: &dyn Database) {
    let keys = fill(store, 60);
    add(store, keys[7], "Plant a bush");
    for key in &keys[50..55] {
        write(store, |write| hide(write, *key)).unwrap();
    }
    let some = |text: &str| Some(text.to_owned());
    let all = SessionFilter::default;
    let since = Some(Time::from_text("2026-01-02T00:00:00Z"));
    let filters = [
        SessionFilter {
            source: some("codex"),
            ..all()
        },
        SessionFilter {
            project: some("GARDEN"),
            ..all()
        },
        SessionFilter {
            text: some("PLANT"),
            ..all()
        },
        SessionFilter {
            since: since.clone(),
            ..all()
        },
        SessionFilter {
            hidden: true,
            ..all()
        },
        SessionFilter {
            since,
            source: some("codex"),
            project: some("ann"),
            ..all()
        },
    ];
    let order = in_order(store);
    for filter in filters {
        let found = ids(&listed(store, &filter));
        let in_order: Vec<_> = order
            .iter()
            .filter(|id| found.contains(id))
            .cloned()
            .collect();
        assert_eq!(found, in_order);
        assert_eq!(
            same_in_every_way(store, &filter, &[1, 2, 5]),
            found.len(),
            "{filter:?}"
        );
    }
    let count = |filter| listed(store, &filter).len();
    assert_eq!(
        count(SessionFilter {
            source: some("codex"),
            ..all()
        }),
        18
    );
    assert_eq!(
        count(SessionFilter {
            text: some("plant"),
            ..all()
        }),
        12
    );
    assert_eq!(
        count(SessionFilter {
            hidden: true,
            ..all()
        }),
        5
    );
    assert_eq!(count(all()), 55);
    assert_eq!(
        count(SessionFilter {
            source: some("nobody"),
            ..all()
        }),
        0
    );
}

pub fn a_place_in_the_list_stays_when_its_session_moves_or_goes(store: &dyn Database) {
    let keys = fill(store, 12);
    let page = |after: Option<SessionCursor>| SessionFilter {
        after,
        limit: Some(4),
        ..SessionFilter::default()
    };
    let whole = ids(&listed(store, &SessionFilter::default()));
    let first = listed(store, &page(None));
    let (place, last) = first.last().unwrap();
    let last = SessionId::new(last.text("session_id").unwrap()).unwrap();
    let at = whole.iter().position(|id| *id == last.as_str()).unwrap();
    let (id, behind) = (
        last.clone(),
        read(store, |read| SessionCursor::behind(read, &last)),
    );
    assert_eq!(behind.unwrap().as_ref(), Some(place));
    // The session is active again, and moves to the top.
    let key = read(store, |read| read.session(&id)).unwrap().unwrap().key;
    assert!(keys.contains(&key));
    add(store, key, "Once more");
    assert_eq!(ids(&listed(store, &page(None)))[0], id.as_str());
    assert_eq!(
        ids(&listed(store, &page(Some(place.clone())))),
        whole[at + 1..at + 5]
    );
    erase(
        store,
        &EraseRequest {
            force: true,
            ..EraseRequest::new(id.clone())
        },
    )
    .unwrap();
    assert_eq!(
        ids(&listed(store, &page(Some(place.clone())))),
        whole[at + 1..at + 5]
    );
    assert_eq!(
        read(store, |read| SessionCursor::behind(read, &id)).unwrap(),
        None
    );
}

pub fn a_place_that_is_none_is_refused(store: &dyn Database) {
    fill(store, 3);
    for text in [
        "",
        "@",
        "x",
        "12x@2026",
        "1.5",
        "@2026-01-01",
        "99999999999999999999",
        "1@a\0b",
    ] {
        let refused = text.parse::<SessionCursor>().unwrap_err().to_string();
        assert!(refused.contains("place in a list"), "{text}: {refused}");
    }
    // A cursor that the store did not return is a position like any other.
    for (text, rows) in [
        ("0", 0),
        ("-9223372036854775808@", 0),
        ("9223372036854775807@9999", 3),
        ("1@'; DROP TABLE sessions;--", 0),
    ] {
        let after = Some(text.parse().unwrap());
        let found = listed(
            store,
            &SessionFilter {
                after,
                ..SessionFilter::default()
            },
        );
        assert!(found.len() <= rows.max(1), "{text}: {}", found.len());
    }
}

pub fn sessions_that_go_on_from_each_other_are_known_from_both_sides(store: &dyn Database) {
    let keys = fill(store, 4);
    let begin = |session: SessionKey, id: &str, parent: Option<&str>| {
        let parent = parent.map(|id| LoopId::new(id).unwrap());
        let record = LoopRecord::new(LoopId::new(id).unwrap(), parent);
        write(store, |write| session::create_loop(write, session, &record)).unwrap();
    };
    begin(keys[0], "first", None);
    begin(keys[0], "second", Some("first"));
    for (session, id) in [(keys[1], "third"), (keys[2], "fourth"), (keys[2], "fifth")] {
        begin(session, id, Some("second"));
    }
    begin(keys[2], "sixth", Some("third"));
    // Its parent does not exist.
    begin(keys[3], "seventh", Some("eighth"));
    store
        .scan(Box::new(|scan| {
            for (session, by, of) in [
                (keys[0], vec![keys[1], keys[2]], vec![]),
                (keys[1], vec![keys[2]], vec![keys[0]]),
                (keys[2], vec![], vec![keys[0], keys[1]]),
                (keys[3], vec![], vec![]),
            ] {
                let expected = scan::Continuations { by, of };
                assert_eq!(scan.continuations(session)?, expected);
            }
            Ok(())
        }))
        .unwrap();
}
