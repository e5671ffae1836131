-- Who else had the identity of a workstation, in the bytes of the core's speakers: copies
-- stay refused when the coordinator starts anew.

ALTER TABLE workstations ADD COLUMN others BLOB;
