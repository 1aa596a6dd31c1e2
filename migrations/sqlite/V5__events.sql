-- The events of a run, as JSON: compactionStarted and compactionEnded.
ALTER TABLE runs ADD COLUMN events TEXT;
