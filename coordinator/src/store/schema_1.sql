-- Times are nanoseconds since 1970-01-01 UTC, spans nanoseconds. A job is one
-- row, however many subprograms it has: one that was never tried has no row.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    job           INTEGER PRIMARY KEY,
    user          TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    command       TEXT    NOT NULL, -- for people; what counts is the spec
    submitted     INTEGER NOT NULL,
    spec          BLOB    NOT NULL, -- a JobSpec in postcard
    state         TEXT    NOT NULL,
    ended         INTEGER,
    succeeded     INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    cancelled     INTEGER NOT NULL,
    retreats      INTEGER NOT NULL,
    suspensions   INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    retried       INTEGER NOT NULL,
    cpu           INTEGER NOT NULL,
    wasted_cpu    INTEGER NOT NULL
) STRICT;

CREATE INDEX jobs_running ON jobs (job) WHERE state = 'running';
CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;

CREATE TABLE subprograms (
    job         INTEGER NOT NULL,
    idx         INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    fence       INTEGER NOT NULL, -- the latest attempt
    workstation INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    retreats    INTEGER NOT NULL,
    lost        INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    cpu         INTEGER NOT NULL,
    avoided     INTEGER,
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    fence       INTEGER PRIMARY KEY,
    job         INTEGER NOT NULL,
    idx         INTEGER NOT NULL,
    workstation INTEGER NOT NULL,
    placed      INTEGER NOT NULL,
    ended       INTEGER,
    how         TEXT
) STRICT;

CREATE INDEX attempts_open ON attempts (fence) WHERE ended IS NULL;
CREATE INDEX attempts_of ON attempts (job, idx);

CREATE TABLE results (
    job      INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    finished BLOB    NOT NULL, -- a Finished in postcard
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

-- The staged files that a job needs or has left: what is not here is nobody's.
CREATE TABLE files (
    job  INTEGER NOT NULL,
    hash BLOB    NOT NULL,
    PRIMARY KEY (job, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_by_hash ON files (hash);

CREATE TABLE workstations (
    workstation INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE identities (
    key         BLOB PRIMARY KEY, -- SubjectPublicKeyInfo in DER
    role        TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    workstation INTEGER,
    enrolled    INTEGER NOT NULL,
    revoked     INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    key     BLOB PRIMARY KEY, -- the public key that its secret gives
    id      TEXT    NOT NULL,
    role    TEXT    NOT NULL,
    name    TEXT,
    expires INTEGER NOT NULL,
    used_by BLOB,
    revoked INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
