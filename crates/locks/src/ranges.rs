//! The locked byte ranges of one file.

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// A locked range of bytes; `end` is exclusive, `i64::MAX` for "to the end of the file".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) mode: Mode,
}

/// The locked ranges of one file; they never overlap.
#[derive(Debug, Default)]
pub(crate) struct Ranges(Vec<Range>);

impl Ranges {
    /// Sets the lock of a range, or removes it if `mode` is `None`, as `fcntl` does: a new lock replaces the
    /// parts of older ones that it covers.
    pub(crate) fn set(&mut self, start: i64, end: i64, mode: Option<Mode>) {
        let covered = |range: &Range| range.start < end && start < range.end;
        let mut cut = Vec::new();
        self.0.retain(|range| {
            if covered(range) {
                cut.push(*range);
            }
            !covered(range)
        });
        for range in cut {
            if range.start < start {
                self.0.push(Range {
                    end: start,
                    ..range
                });
            }
            if end < range.end {
                self.0.push(Range {
                    start: end,
                    ..range
                });
            }
        }
        if let Some(mode) = mode {
            self.0.push(Range { start, end, mode });
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes the ranges for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Range) -> bool) {
        self.0.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every history of small locks with an array of bytes.
    #[test]
    fn ranges_are_what_an_array_of_bytes_says() {
        let modes = [None, Some(Mode::Shared), Some(Mode::Exclusive)];
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let (mut ranges, mut bytes) = (Ranges::default(), [None; 12]);
            for _ in 0..12 {
                let start = random(11) as i64;
                let end = start + 1 + random(11 - start as u64 + 1) as i64;
                let mode = modes[random(3) as usize];
                ranges.set(start, end, mode);
                bytes[start as usize..end.min(12) as usize].fill(mode);
                for (at, expected) in (0i64..).zip(bytes) {
                    let found: Vec<_> = ranges
                        .iter()
                        .filter(|range| (range.start..range.end).contains(&at))
                        .map(|range| range.mode)
                        .collect();
                    assert_eq!(found, Vec::from_iter(expected), "byte {at}");
                }
                assert_eq!(ranges.is_empty(), bytes == [None; 12]);
            }
        }
    }
}
