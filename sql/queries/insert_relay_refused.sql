-- Sets a row of the feed aside that can never be a record. $1 id, $2 seq, $3 aggregatetype, $4 aggregateid, $5 type,
-- $6 payload, $7 tracingspancontext, $8 reason, $9 detail: text.
INSERT INTO relay_refused (id, seq, aggregatetype, aggregateid, type, payload, tracingspancontext, reason, detail)
VALUES ($1::text::uuid, $2::text::bigint, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (id) DO NOTHING
