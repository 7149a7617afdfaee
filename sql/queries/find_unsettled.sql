-- A page of attempts of unknown outcome. $1 after attempt id uuid, $2 at most int.
SELECT attempt_id, outbox_id FROM email_unsettled WHERE attempt_id > $1 ORDER BY attempt_id LIMIT $2;
