-- The address is off the provider's list and is forgotten, unless that was asked for again meanwhile. $1 recipient key text, $2 requested timestamptz.
DELETE FROM provider_unlisting WHERE recipient_key = $1 AND requested = $2;
