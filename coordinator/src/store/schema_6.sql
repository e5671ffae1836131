-- What was learned of owners, in the bytes of the core's outlook: of each
-- workstation's, and under number -1 what all have in common.

CREATE TABLE learned (
    workstation INTEGER PRIMARY KEY,
    learned     BLOB NOT NULL
) STRICT;
