-- The fingerprint of the database's salt; null without one.
SELECT recipient_salt_fingerprint()
