-- The transactions, by the lower 32 bits of their ids, that a replication slot has not confirmed. $1 slot: text, $2 publication: text.
SELECT DISTINCT xid::text::bigint AS xid
FROM pg_logical_slot_peek_binary_changes($1::text::name, NULL, NULL, 'proto_version', '1', 'publication_names', $2::text)
