-- The provider never takes this address: what is left is for a person. $1 recipient key text, $2 requested timestamptz.
UPDATE provider_unlisting SET address = NULL WHERE recipient_key = $1 AND requested = $2;
