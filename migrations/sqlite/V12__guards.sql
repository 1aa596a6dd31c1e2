-- A guard that fails with ABORT makes SQLite copy every page that a statement is about to change, in case
-- the statement has to be taken back: half a microsecond and eight kilobytes for each row of an append.
-- The guards that every append passes fail with FAIL: what they refuse is refused as before, row by row,
-- and a statement over many rows stops there.

DROP TRIGGER messages_no_replace;
CREATE TRIGGER messages_no_replace
BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM messages WHERE id = NEW.id)
BEGIN
    SELECT RAISE(FAIL, 'a stored message is never replaced');
END;

DROP TRIGGER turns_no_replace;
CREATE TRIGGER turns_no_replace
BEFORE INSERT ON turns
WHEN EXISTS (
    SELECT 1 FROM turns
    WHERE id = NEW.id AND (first_seq IS NOT NEW.first_seq OR turn_index IS NOT NEW.turn_index)
)
BEGIN
    SELECT RAISE(FAIL, 'a turn is never replaced');
END;

DROP TRIGGER turns_stay;
CREATE TRIGGER turns_stay
BEFORE UPDATE ON turns
WHEN (NEW.id IS NOT OLD.id OR NEW.first_seq IS NOT OLD.first_seq
        OR NEW.turn_index IS NOT OLD.turn_index)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(FAIL, 'a turn never moves');
END;

DROP TRIGGER loops_stay_sealed;
CREATE TRIGGER loops_stay_sealed
BEFORE UPDATE ON loops
WHEN (NEW.key IS NOT OLD.key OR NEW.session IS NOT OLD.session OR NEW.loop_id IS NOT OLD.loop_id
        OR NEW.parent IS NOT OLD.parent OR NEW.parent_turn IS NOT OLD.parent_turn
        OR NEW.tick IS NOT OLD.tick OR NEW.sealed_seq < OLD.sealed_seq)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(FAIL, 'the place of a loop in its tree and its seal never change');
END;

DROP TRIGGER sessions_keep_their_id;
CREATE TRIGGER sessions_keep_their_id
BEFORE UPDATE ON sessions
WHEN (NEW.key IS NOT OLD.key OR NEW.session_id IS NOT OLD.session_id OR NEW.tick < OLD.tick)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.key AND closed_at IS NULL)
BEGIN
    SELECT RAISE(FAIL, 'the id and the clock of a session never go back');
END;

DROP TRIGGER block_messages_no_replace;
CREATE TRIGGER block_messages_no_replace
BEFORE INSERT ON block_messages
WHEN EXISTS (SELECT 1 FROM block_messages WHERE id = NEW.id)
BEGIN
    SELECT RAISE(FAIL, 'a message of a block is never replaced');
END;
