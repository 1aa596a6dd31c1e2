-- A guard that fails with ABORT makes SQLite copy every page that a statement is about to change, in case
-- the statement has to be taken back. The two that every append passes when it writes the totals of its
-- loop and session fail with FAIL: what they refuse is refused as before, row by row, and a statement over
-- many rows stops there. (An insert with a key of its own is copied for in any case.)

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
