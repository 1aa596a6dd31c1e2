//! Reads the next files of an import while the writer works on one.

use std::collections::VecDeque;
use std::io::BufReader;
use std::thread::Scope;

use loopstore::internal::Packing;
use loopstore::tokens::TokenCounter;
use loopstore_locks::SharedFile;

use super::files::{BUFFER_BYTES, ImportOptions, Transcript};
use super::matching::Digests;
use super::pipeline::{Encoder, ReaderThread, SkipEncoding};
use super::{ImportError, Importer, Sink, Source, read_transcript, unread};

/// The maximum number of files read at once …
const MAX_FILES: usize = 3;
/// … and of their bytes, since an importer may hold an index of its file. One file is always read.
const MAX_BYTES: u64 = 64 << 20;

/// A file that is being read.
pub(super) struct OpenedTranscript<'scope> {
    pub(super) reading: ReaderThread<'scope>,
    pub(super) skip_encoding: SkipEncoding,
    /// The parts of the file, packed ahead; `None` if the file is not stored.
    pub(super) pieces: Option<Packing>,
    bytes: u64,
}

/// The files of an import in order; the first ones are being read.
pub(super) struct FileQueue<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    encoder: Encoder<'scope>,
    options: &'scope ImportOptions,
    waiting: std::slice::Iter<'scope, Transcript<'scope>>,
    /// `None` stands for a file that is not read ahead.
    open: VecDeque<Option<OpenedTranscript<'scope>>>,
}

impl<'scope, 'env> FileQueue<'scope, 'env> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        counter: &'scope dyn TokenCounter,
        digests: Digests,
        files: &'scope [Transcript<'scope>],
        options: &'scope ImportOptions,
    ) -> Self {
        let skip_encoding = SkipEncoding::default();
        Self {
            scope,
            encoder: Encoder {
                digests,
                counter,
                skip_encoding,
            },
            options,
            waiting: files.iter(),
            open: VecDeque::new(),
        }
    }

    /// Returns the next file, and begins to read files after it. Returns `None` for a file that the writer must read
    /// itself.
    pub(super) fn next(&mut self) -> Option<OpenedTranscript<'scope>> {
        while let Some(file) = self.waiting.as_slice().first()
            && self.has_room(file)
        {
            let opened = self.start(file);
            self.open.push_back(opened);
            self.waiting.next();
        }
        self.open.pop_front().flatten()
    }

    fn has_room(&self, file: &Transcript<'_>) -> bool {
        let held = self.open.iter().flatten().map(|open| open.bytes);
        self.open.is_empty()
            || self.open.len() < MAX_FILES && held.sum::<u64>() + file.bytes <= MAX_BYTES
    }

    fn start(&self, file: &'scope Transcript<'scope>) -> Option<OpenedTranscript<'scope>> {
        let importer: &dyn Importer = file.importer;
        if importer.holds_rows() {
            return None;
        }
        let skip_encoding = match self.options.redact {
            true => SkipEncoding::always(),
            false => SkipEncoding::default(),
        };
        let encoder = Encoder {
            skip_encoding: skip_encoding.clone(),
            ..self.encoder.clone()
        };
        let reading = ReaderThread::start(self.scope, encoder, |sink| read(file, sink));
        let stop = skip_encoding.clone();
        let keeps = self.options.keeps_files() && !self.options.redact;
        // The reader of a file reports that it cannot be opened.
        let pieces = keeps.then(|| Packing::start(self.scope, &file.path, move || stop.is_set()));
        Some(OpenedTranscript {
            reading,
            skip_encoding,
            pieces: pieces.and_then(Result::ok),
            bytes: file.bytes,
        })
    }
}

fn read(file: &Transcript<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let path = &file.path;
    let opened = SharedFile::open(path).map_err(unread(path))?;
    let mut source = Source {
        path,
        reader: &mut BufReader::with_capacity(BUFFER_BYTES, opened),
    };
    read_transcript(file.importer, &mut source, sink)
}
