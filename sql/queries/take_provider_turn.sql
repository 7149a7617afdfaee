-- Leave for one call about the list, for one replica of all, if there is anything to do. $1 scope text, $2 for how long at most interval, $3 longest pause interval.
-- A time further ahead than it is ever set means that the server's clock was set back.
UPDATE provider_list AS p SET next_call = clock_timestamp() + $2::interval
WHERE p.scope = $1
  AND (p.next_call <= clock_timestamp() OR p.next_call > clock_timestamp() + greatest($2::interval, $3::interval) + interval '1 second')
  AND (p.finished IS NULL
    OR EXISTS (SELECT FROM provider_unlisting AS u WHERE u.address IS NOT NULL AND u.due <= clock_timestamp()))
RETURNING CASE WHEN p.finished IS NULL THEN p.asked END AS importing, p.next_token;
