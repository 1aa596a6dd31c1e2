//! Messages of which some contents are not needed: texts that edits remove or replace.

use std::ops::Range;

use super::reader::{SqliteReader, span};
use super::statements::*;
use crate::store::columns::Columns;
use crate::store::error::StoreResult;
use crate::store::*;

impl SqliteReader<'_> {
    /// Visits messages as [`ReadMessages::message_refs_as_needed`] does.
    pub(super) fn visit_refs_as_needed(
        &self,
        (loop_key, seqs): (LoopKey, Range<u32>),
        proofs: bool,
        need: &dyn Fn(u32) -> ContentNeed,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        let sql = if proofs {
            MESSAGE_REFS_AS_NEEDED_WITH_PROOF
        } else {
            MESSAGE_REFS_AS_NEEDED
        };
        let (mut next, mut is_over) = (seqs.start, false);
        while let Some(window) = Window::next(next..seqs.end, need)
            && !is_over
        {
            next = window.seqs.end;
            if window.without_text == 0 {
                self.message_refs(loop_key, window.seqs, proofs, &mut |row| {
                    let flow = visit(row)?;
                    is_over = flow.is_break();
                    Ok(flow)
                })?;
                continue;
            }
            let Some((first, last)) = span(loop_key.0, &window.seqs) else {
                break;
            };
            self.in_order(sql, (first, last, window.without_text), &mut |row| {
                let seq = row.number("seq")?;
                let turn = row.get("turn")?;
                let message = stored_message_ref(row, proofs)?;
                let flow = self.visit_ref((loop_key, seq), turn, None, message, visit)?;
                is_over = flow.is_break();
                Ok(flow)
            })?;
        }
        Ok(())
    }
}

/// Messages that one statement reads, and the texts among them that it leaves out.
struct Window {
    seqs: Range<u32>,
    /// A bit for each of the first messages: set if the text of the message is not needed.
    without_text: i64,
}

impl Window {
    /// The messages of a window that leaves out texts: one for each bit of a positive number.
    const MESSAGES: u32 = 63;

    /// Returns the first window of some messages; `None` if none of them is needed. A statement costs as much as a few
    /// rows, so that a window may have messages of which nothing is needed.
    fn next(seqs: Range<u32>, need: &dyn Fn(u32) -> ContentNeed) -> Option<Self> {
        let start = seqs
            .clone()
            .find(|seq| need(*seq) != ContentNeed::Nothing)?;
        let end = seqs.end.min(start.saturating_add(Self::MESSAGES));
        let mut window = Self {
            seqs: start..start,
            without_text: 0,
        };
        for (bit, seq) in (start..end).enumerate() {
            let need = need(seq);
            if need != ContentNeed::Whole {
                window.without_text |= 1 << bit;
            }
            if need != ContentNeed::Nothing {
                window.seqs.end = seq + 1;
            }
        }
        if window.without_text == 0 {
            let whole = (end..seqs.end).take_while(|seq| need(*seq) == ContentNeed::Whole);
            window.seqs.end = whole.last().map_or(end, |last| last + 1);
        }
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContentNeed::{Head, Nothing, Whole};

    /// Returns what is read of each message: nothing, the head, or all.
    fn read(needs: &[ContentNeed]) -> Vec<ContentNeed> {
        let end = u32::try_from(needs.len()).unwrap();
        let need = |seq: u32| needs[seq as usize];
        let (mut read, mut next) = (vec![Nothing; needs.len()], 0);
        while let Some(window) = Window::next(next..end, &need) {
            assert!(window.seqs.start >= next && !window.seqs.is_empty());
            next = window.seqs.end;
            for (bit, seq) in window.seqs.enumerate() {
                let is_without = bit < 63 && window.without_text >> bit & 1 == 1;
                read[seq as usize] = if is_without { Head } else { Whole };
            }
        }
        read
    }

    #[test]
    fn each_message_is_read_once_and_with_what_is_needed() {
        let mut random = 7u32;
        for length in (0..200).chain([1_000]) {
            for kinds in 1..=3 {
                let mut kind = Whole;
                let needs: Vec<ContentNeed> = (0..length)
                    .map(|_| {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        if random >> 28 < 6 {
                            kind = [Whole, Head, Nothing][(random >> 8) as usize % kinds];
                        }
                        kind
                    })
                    .collect();
                for (needed, read) in needs.iter().zip(read(&needs)) {
                    match needed {
                        Nothing => assert_ne!(read, Whole),
                        needed => assert_eq!(read, *needed),
                    }
                }
            }
        }
        assert_eq!(read(&[Whole; 300]), [Whole; 300]);
        assert_eq!(read(&[Nothing; 300]), [Nothing; 300]);
    }
}
