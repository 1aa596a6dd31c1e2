-- `loopstore recount` counts the tokens of everything anew with another token counter. A block holds
-- two sums of such counts, which its digest leaves out since this version; they may be rewritten, and
-- nothing else of it. (Messages and their turns could be counted anew from the first version on; a
-- run names the counter of its figures and is never changed.)

DROP TRIGGER blocks_no_update;

CREATE TRIGGER blocks_no_update
BEFORE UPDATE ON blocks
WHEN (NEW.key IS NOT OLD.key OR NEW.loop IS NOT OLD.loop OR NEW.generation IS NOT OLD.generation
        OR NEW.run IS NOT OLD.run OR NEW.kind IS NOT OLD.kind OR NEW.extends IS NOT OLD.extends
        OR NEW.first_start IS NOT OLD.first_start OR NEW.first_end IS NOT OLD.first_end
        OR NEW.compacted_start IS NOT OLD.compacted_start
        OR NEW.compacted_end IS NOT OLD.compacted_end
        OR NEW.recent_start IS NOT OLD.recent_start OR NEW.recent_end IS NOT OLD.recent_end
        OR NEW.through IS NOT OLD.through OR NEW.bytes_block IS NOT OLD.bytes_block
        OR NEW.messages_block IS NOT OLD.messages_block OR NEW.strategy IS NOT OLD.strategy
        OR NEW.shaping IS NOT OLD.shaping OR NEW.created_at IS NOT OLD.created_at
        OR NEW.extra IS NOT OLD.extra OR NEW.digest IS NOT OLD.digest)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.loop AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a block is never changed');
END;

-- How far a recount is stands in store_meta until it is done.
DROP TRIGGER store_meta_no_delete;

CREATE TRIGGER store_meta_no_delete
BEFORE DELETE ON store_meta
WHEN OLD.name IS NOT 'recount'
BEGIN
    SELECT RAISE(ABORT, 'what a database is written with is never deleted');
END;
