-- Notes who puts suppressions into the feed again, and why. $1 by whom, $2 why, $3 recipient key or null text, $4 detail jsonb.
INSERT INTO audit_log (by_whom, action, why, recipient_key, detail) VALUES ($1::text, 'republish', $2::text, $3::text, $4::jsonb);
