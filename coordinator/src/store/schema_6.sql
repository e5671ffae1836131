-- A job's spec says what its workstations must be like and which are better, and
-- its shape: class, minimum, preferred and maximum, which sizes, estimate and
-- speed-up. None of it was said.

UPDATE jobs SET spec = CAST(spec || x'000000000000000000' AS BLOB);
