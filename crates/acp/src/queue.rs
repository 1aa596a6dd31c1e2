//! The bounded queue between the pumps and the worker.
//!
//! A pump never waits for the worker: if the queue is full, the bytes are dropped and counted, and the line that they
//! belong to is skipped.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::serve::ServeRequest;

/// The size that an item has in the queue besides its bytes.
const ITEM_BYTES: usize = 64;

/// The direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the editor to the agent.
    ToAgent,
    /// From the agent to the editor.
    ToEditor,
}

/// One item of the queue.
#[derive(Debug)]
pub(crate) enum Item {
    /// Bytes as they were passed on.
    Bytes(Direction, Vec<u8>),
    /// A gap: bytes that did not fit into the queue.
    Dropped(Direction, u64),
    /// A request of the editor that the store answers.
    Serve(ServeRequest),
}

/// The result of waiting for an item.
#[derive(Debug)]
pub(crate) enum Popped {
    Item(Item),
    /// No item came in time.
    TimedOut,
    /// No item will come any more.
    Finished,
}

#[derive(Default)]
struct QueueState {
    items: VecDeque<Item>,
    bytes: usize,
    is_finished: bool,
}

/// The queue.
pub(crate) struct LineQueue {
    state: Mutex<QueueState>,
    added: Condvar,
    max_bytes: usize,
}

impl LineQueue {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            added: Condvar::new(),
            max_bytes,
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // A panic elsewhere leaves the items as they were.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a copy of the bytes, or a gap if they do not fit. [`wake`](Self::wake) starts the worker, which would
    /// otherwise compete with the pump for the processor while the bytes are on their way.
    pub fn push_bytes(&self, direction: Direction, bytes: &[u8]) {
        let mut state = self.state();
        if state.is_finished {
            return;
        }
        let size = bytes.len() + ITEM_BYTES;
        if state.bytes + size <= self.max_bytes {
            state.bytes += size;
            state
                .items
                .push_back(Item::Bytes(direction, bytes.to_vec()));
        } else {
            let new = bytes.len() as u64;
            match state.items.back_mut() {
                Some(Item::Dropped(last, dropped)) if *last == direction => *dropped += new,
                _ => state.items.push_back(Item::Dropped(direction, new)),
            }
        }
    }

    /// Starts the worker if it waits for an item.
    pub fn wake(&self) {
        self.added.notify_one();
    }

    /// Adds an item that is never dropped.
    pub fn push(&self, item: Item) {
        self.state().items.push_back(item);
        self.wake();
    }

    /// Makes the worker stop after the last item.
    pub fn finish(&self) {
        self.state().is_finished = true;
        self.added.notify_one();
    }

    /// Waits for the next item; at most for this time if there is one.
    pub fn pop(&self, at_most: Option<Duration>) -> Popped {
        let state = self.state();
        let is_waiting = |state: &mut QueueState| state.items.is_empty() && !state.is_finished;
        let mut state = match at_most {
            None => self.added.wait_while(state, is_waiting),
            Some(time) => self
                .added
                .wait_timeout_while(state, time, is_waiting)
                .map(|(state, _)| state)
                .map_err(|error| PoisonError::new(error.into_inner().0)),
        }
        .unwrap_or_else(PoisonError::into_inner);
        match state.items.pop_front() {
            Some(item) => {
                if let Item::Bytes(_, bytes) = &item {
                    state.bytes -= bytes.len() + ITEM_BYTES;
                }
                Popped::Item(item)
            }
            None if state.is_finished => Popped::Finished,
            None => Popped::TimedOut,
        }
    }

    /// Returns the number of bytes that the worker has not taken, the dropped ones included.
    pub fn waiting_bytes(&self) -> u64 {
        let state = self.state();
        let bytes = state.items.iter().map(|item| match item {
            Item::Bytes(_, bytes) => bytes.len() as u64,
            Item::Dropped(_, dropped) => *dropped,
            Item::Serve(_) => 0,
        });
        bytes.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let queue = LineQueue::new(200);
        queue.push_bytes(Direction::ToAgent, &[1; 100]);
        queue.push_bytes(Direction::ToAgent, &[2; 100]);
        queue.push_bytes(Direction::ToAgent, &[3; 50]);
        queue.push_bytes(Direction::ToEditor, &[4; 100]);
        assert_eq!(queue.waiting_bytes(), 350);
        assert!(
            matches!(queue.pop(None), Popped::Item(Item::Bytes(_, bytes)) if bytes == [1; 100])
        );
        let next = queue.pop(None);
        assert!(matches!(
            next,
            Popped::Item(Item::Dropped(Direction::ToAgent, 150))
        ));
        // There is room again.
        queue.push_bytes(Direction::ToAgent, &[5; 100]);
        let next = queue.pop(None);
        assert!(matches!(
            next,
            Popped::Item(Item::Dropped(Direction::ToEditor, 100))
        ));
        assert!(matches!(queue.pop(None), Popped::Item(Item::Bytes(..))));
        let none = queue.pop(Some(Duration::from_millis(1)));
        assert!(matches!(none, Popped::TimedOut));
        queue.finish();
        queue.push_bytes(Direction::ToAgent, b"late");
        assert!(matches!(queue.pop(None), Popped::Finished));
    }
}
