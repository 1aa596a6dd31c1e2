//! A reader of zstd data: one frame or several, one after the other.

use std::io::{self, BufRead, Error, ErrorKind, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window that a frame may request, in bytes: it is held in memory.
const MAX_WINDOW: u64 = 64 << 20;

/// A reader that decompresses.
pub(crate) struct ZstdReader<R> {
    reader: R,
    /// The frame that is being read.
    frame: Option<FrameDecoder>,
}

impl<R: BufRead> ZstdReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            frame: None,
        }
    }

    /// Begins the next frame; skippable frames are skipped. Returns `false` at the end of the data.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.reader.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut frame = FrameDecoder::new();
            frame.set_max_window_size(MAX_WINDOW);
            match frame.init(&mut self.reader) {
                Ok(()) => {
                    self.frame = Some(frame);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.reader).take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(frame) = &mut self.frame else {
                match self.begin()? {
                    true => continue,
                    false => return Ok(0),
                }
            };
            if frame.can_collect() > 0 {
                return frame.read(buffer);
            }
            if !frame.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                frame
                    .decode_blocks(&mut self.reader, one)
                    .map_err(|error| damaged(&error))?;
                continue;
            }
            let stated = frame.get_checksum_from_data();
            if stated.is_some() && stated != frame.get_calculated_checksum() {
                return Err(damaged(&"its checksum does not match"));
            }
            self.frame = None;
        }
    }
}

fn damaged(error: &dyn std::fmt::Display) -> Error {
    let reason = format!("its zstd data is cut off or damaged ({error})");
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn unpack(bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let mut text = Vec::new();
        let end = ZstdReader::new(bytes).read_to_end(&mut text);
        (text, end.map(drop))
    }

    #[test]
    fn frames_and_skippable_frames_are_read_one_after_the_other() {
        let mut packed = b"\x50\x2A\x4D\x18\x03\0\0\0abc".to_vec();
        packed.extend(compress_to_vec(&b"one\n"[..], CompressionLevel::Fastest));
        packed.extend(b"\x5F\x2A\x4D\x18\0\0\0\0");
        packed.extend(compress_to_vec(&b""[..], CompressionLevel::Fastest));
        packed.extend(compress_to_vec(&b"two\n"[..], CompressionLevel::Fastest));
        let (text, end) = unpack(&packed);
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(text, b"one\ntwo\n");
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let text: Vec<u8> = (0..9_000u32).flat_map(|n| (n * n).to_be_bytes()).collect();
        let packed = compress_to_vec(&text[..], CompressionLevel::Fastest);
        for cut in (0..packed.len()).step_by(97) {
            let (found, end) = unpack(&packed[..cut]);
            assert!(text.starts_with(&found) && (cut == 0 || end.is_err()));
        }
        for at in (0..packed.len()).step_by(31) {
            let mut bent = packed.clone();
            bent[at] ^= 0x55;
            let _ = unpack(&bent);
        }
    }
}
