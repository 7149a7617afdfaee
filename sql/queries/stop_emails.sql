-- Cancels messages for the sake of an erasure, and says of each what became of it. $1 outbox ids uuid[] (each once), $2 reason text.
SELECT a.id, cancel_email(a.id, $2) AS outcome FROM (SELECT n.id FROM unnest($1::uuid[]) AS n (id) ORDER BY n.id) AS a
