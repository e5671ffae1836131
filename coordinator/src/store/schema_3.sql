-- Programs of ranks, and attempts that move.

ALTER TABLE jobs ADD COLUMN program    INTEGER NOT NULL DEFAULT 0; -- is it one program of ranks?
ALTER TABLE jobs ADD COLUMN moves      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN moved      INTEGER NOT NULL DEFAULT 0; -- bytes
ALTER TABLE jobs ADD COLUMN frozen     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN spawned    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN life       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workstations ADD COLUMN incarnation INTEGER; -- which life of its agent
ALTER TABLE subprograms ADD COLUMN moves INTEGER NOT NULL DEFAULT 0;

-- While an attempt's state is on its way: from which attempt and workstation,
-- and how much of it comes along.
ALTER TABLE attempts ADD COLUMN old  INTEGER;
ALTER TABLE attempts ADD COLUMN came INTEGER;
ALTER TABLE attempts ADD COLUMN keep TEXT;
ALTER TABLE attempts ADD COLUMN arrived INTEGER NOT NULL DEFAULT 0; -- has it come?

-- What happened to running programs, from which their state is built anew.
CREATE TABLE events (
    job      INTEGER NOT NULL,
    life     INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    event    BLOB    NOT NULL,
    PRIMARY KEY (job, life, sequence)
) STRICT, WITHOUT ROWID;

-- What a job's user should know, the oldest first.
CREATE TABLE notes (
    job  INTEGER NOT NULL,
    line INTEGER NOT NULL,
    note TEXT    NOT NULL,
    PRIMARY KEY (job, line)
) STRICT, WITHOUT ROWID;

-- The staged parts of the snapshots that running programs go back to.
CREATE TABLE cuts (
    job  INTEGER NOT NULL,
    hash BLOB    NOT NULL,
    PRIMARY KEY (job, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX cuts_by_hash ON cuts (hash);
