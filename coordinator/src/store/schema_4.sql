-- The events of programs begin with the version of their form, which was 1.

UPDATE events SET event = CAST(x'01' || event AS BLOB);
