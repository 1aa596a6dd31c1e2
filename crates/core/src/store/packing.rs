//! Packs the parts of a file ahead of the writer: compression is as much work as all the rest of keeping a
//! file, and needs no transaction.

use std::io::{self, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Scope;

use loopstore_locks::SharedFile;

use super::rows::SourcePiece;
use super::source::{MAX_PART_BYTES, packed, read_some};

/// Threads that share the parts of a large file …
const WORKERS: usize = 2;
/// … which is one of more parts than this.
const FEW_PARTS: u64 = 4;
/// The largest number of packed parts of each thread that wait for the writer.
const WAITING: usize = 8;

/// The packed parts of a file, in order.
pub struct Packing {
    /// The workers, which pack the parts in turn.
    workers: Vec<Receiver<io::Result<SourcePiece>>>,
    next: usize,
}

impl Packing {
    /// Begins to pack the file at `path`; ends early once `stop` is set.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        path: &Path,
        stop: impl Fn() -> bool + Clone + Send + 'scope,
    ) -> io::Result<Self> {
        let size = std::fs::metadata(path)?.len();
        let count = match size > FEW_PARTS * MAX_PART_BYTES as u64 {
            true => WORKERS,
            false => 1,
        };
        let mut workers = Vec::new();
        for first in 0..count {
            let (send, receive) = sync_channel(WAITING);
            let (mut file, stop) = (SharedFile::open(path)?, stop.clone());
            scope.spawn(move || {
                for number in (first as u64..).step_by(count) {
                    let part = match stop() {
                        true => return,
                        false => part(&mut file, number).transpose(),
                    };
                    if part.is_none_or(|part| send.send(part).is_err()) {
                        return;
                    }
                }
            });
            workers.push(receive);
        }
        Ok(Self { workers, next: 0 })
    }
}

impl Iterator for Packing {
    type Item = io::Result<SourcePiece>;

    fn next(&mut self) -> Option<Self::Item> {
        let worker = self.workers.get(self.next % self.workers.len().max(1))?;
        self.next += 1;
        worker.recv().ok()
    }
}

/// Packs one part; returns `None` after the end of the file.
fn part(file: &mut SharedFile, number: u64) -> io::Result<Option<SourcePiece>> {
    file.seek(SeekFrom::Start(number * MAX_PART_BYTES as u64))?;
    let data = read_some(file, MAX_PART_BYTES as u64)?;
    (!data.is_empty()).then(|| packed(&data)).transpose()
}
