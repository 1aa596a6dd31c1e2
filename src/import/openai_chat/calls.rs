//! Which calls of a chat still wait for their result.

use std::collections::HashMap;

/// The place of a call: its loop and turn.
pub(super) type Place = (u32, u32);

struct Open {
    id: String,
    name: String,
    place: Option<Place>,
}

/// The calls of a chat so far.
#[derive(Default)]
pub(in crate::import) struct Calls {
    open: Vec<Open>,
    /// Every call by its id, the last one of each.
    known: HashMap<String, (String, Option<Place>)>,
    answered: Option<Place>,
}

impl Calls {
    /// Notes a call.
    pub(super) fn add(&mut self, id: &str, name: &str) {
        self.open.push(Open {
            id: id.into(),
            name: name.into(),
            place: None,
        });
        self.known.insert(id.into(), (name.into(), None));
    }

    /// Says where the calls noted since the last time stand.
    pub(super) fn place(&mut self, place: Place) {
        for open in self
            .open
            .iter_mut()
            .rev()
            .take_while(|open| open.place.is_none())
        {
            open.place = Some(place);
            if let Some(known) = self.known.get_mut(&open.id) {
                known.1 = Some(place);
            }
        }
    }

    /// Notes a result and returns the id and name of its call. Without an id it answers the first
    /// open call of that name, without a name the first open call.
    pub(super) fn answer(&mut self, id: Option<String>, name: Option<String>) -> (String, String) {
        let at = match (&id, &name) {
            (Some(id), _) => self.open.iter().rposition(|open| open.id == *id),
            (None, Some(name)) => self.open.iter().position(|open| open.name == *name),
            (None, None) => (!self.open.is_empty()).then_some(0),
        };
        let call = at.map(|at| self.open.remove(at));
        let id = id.or(call.map(|call| call.id)).unwrap_or_default();
        let (known_name, place) = self.known.get(&id).cloned().unwrap_or_default();
        self.answered = place;
        (id, name.unwrap_or(known_name))
    }

    /// Returns where the call of the last result stands.
    pub(super) fn answered_at(&self) -> Option<Place> {
        self.answered
    }

    /// Whether a call at `place` has no result yet.
    pub(super) fn open_at(&self, place: Place) -> bool {
        self.open.iter().any(|open| open.place == Some(place))
    }
}
