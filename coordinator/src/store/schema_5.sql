-- A job's spec says its priority, which was 0, and whether it is public, which
-- none was.

UPDATE jobs SET spec = CAST(spec || x'0000' AS BLOB);

ALTER TABLE jobs ADD COLUMN public INTEGER NOT NULL DEFAULT 0;

-- Decayed place-seconds of users, as of a time.

CREATE TABLE usage (
    user   TEXT PRIMARY KEY,
    used_s REAL    NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Of the latest attempts, so many were lost one after the other.

ALTER TABLE subprograms ADD COLUMN lost_in_a_row INTEGER NOT NULL DEFAULT 0;

-- Nothing new is placed on a drained workstation. One that was taken away keeps
-- its number, and its name with the number behind it.

ALTER TABLE workstations ADD COLUMN drained INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workstations ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;

-- When an identity's certificate runs out; NULL for those of before they did.

ALTER TABLE identities ADD COLUMN expires INTEGER;
