-- The address is off the provider's list and is forgotten, unless that was asked for again meanwhile; what the list suppressed until now is lifted. $1 recipient key text, $2 requested timestamptz.
SELECT provider_unlisted($1::text, $2::timestamptz) AS done;
