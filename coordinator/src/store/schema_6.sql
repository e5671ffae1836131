-- A job's spec says what its workstations must be like, and which are better;
-- neither was said before.

UPDATE jobs SET spec = CAST(spec || x'0000' AS BLOB);
