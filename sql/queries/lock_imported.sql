-- Locks the suppressions of the recipients that imported_recipient holds, in the order of their keys, before any row of theirs is changed.
INSERT INTO suppressed_recipient AS r (recipient_key)
SELECT DISTINCT i.recipient_key COLLATE "C" FROM imported_recipient AS i ORDER BY 1
ON CONFLICT (recipient_key) DO UPDATE SET recipient_key = r.recipient_key WHERE false;
