-- The next messages of others of which a recipient has a copy, with the address in them, in the order of their ids. $1 recipient key text, $2 after id uuid, $3 at most int.
SELECT o.id, o.state
FROM email_outbox AS o
WHERE (o.cc_keys || o.bcc_keys) @> ARRAY[$1::text] AND (o.cc_keys IS NOT NULL OR o.bcc_keys IS NOT NULL) AND o.id > $2
  AND EXISTS (SELECT FROM unnest(o.cc || o.bcc, o.cc_keys || o.bcc_keys) AS c (address, key) WHERE c.key = $1 AND c.address <> erased_address())
ORDER BY o.id
LIMIT $3
