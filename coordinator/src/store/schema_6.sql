-- A job's spec says what its workstations must be like and which are better, and
-- its shape: class, minimum, preferred and maximum, which sizes, estimate and
-- speed-up. None of it was said. Each subprogram had one core, and no GPU.

UPDATE jobs SET spec = CAST(spec || x'0000000000000000000100' AS BLOB);

-- What was learned of owners, in the bytes of the core's outlook: of each
-- workstation's, and under number -1 what all have in common.

CREATE TABLE learned (
    workstation INTEGER PRIMARY KEY,
    learned     BLOB NOT NULL
) STRICT;
