-- A job's spec says its priority, which was 0, whether it is public, which none
-- was, and how many replicas its subprograms have, which was one.

UPDATE jobs SET spec = CAST(spec || x'000001' AS BLOB);

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

-- The replicas of replicated subprograms that were tried. What one came to is
-- its answer, a hash; equal ones agree.

CREATE TABLE replicas (
    job           INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    replica       INTEGER NOT NULL, -- 0, 1, ..
    fence         INTEGER NOT NULL, -- the latest attempt
    workstation   INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    retreats      INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    lost_in_a_row INTEGER NOT NULL,
    moves         INTEGER NOT NULL,
    outcome       TEXT    NOT NULL,
    cpu           INTEGER NOT NULL,
    avoided       INTEGER,
    trail         BLOB    NOT NULL, -- the workstations that had it in hand, in postcard
    answer        BLOB,
    finished      BLOB,             -- a Finished in postcard
    PRIMARY KEY (job, idx, replica)
) STRICT, WITHOUT ROWID;

ALTER TABLE attempts ADD COLUMN replica INTEGER NOT NULL DEFAULT 0;

-- The files that a user has sent, or an agent ("agent/NAME"), and since when
-- they may name them: nobody learns of a file by its hash alone.

CREATE TABLE uploads (
    sender TEXT    NOT NULL,
    hash   BLOB    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (sender, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX uploads_by_age ON uploads (at);
