-- A process of the intake says that it has watched until now. $1 process uuid, $2 stage text, $3 what went wrong since its last report text or null, $4 longest time between two reports interval, $5 whether it ends boolean.
INSERT INTO intake_watch AS w (process, stage, trouble, trouble_kind, ended)
VALUES ($1, $2, CASE WHEN $3::text IS NOT NULL THEN clock_timestamp() END, $3, $5)
ON CONFLICT (process) DO UPDATE SET
  reported = clock_timestamp(),
  trouble = CASE WHEN $3 IS NOT NULL OR w.reported + $4::interval < clock_timestamp() THEN clock_timestamp() ELSE w.trouble END,
  trouble_kind = CASE WHEN $3 IS NOT NULL THEN $3 WHEN w.reported + $4 < clock_timestamp() THEN 'no-report-for-long' ELSE w.trouble_kind END,
  ended = $5;
