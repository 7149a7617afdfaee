-- Dead letters by class and reason, the most frequent first. $1 class text or null, $2 reason text or null, $3 tenant text or null, $4 lane text or null, $5 at most int.
SELECT l.class, l.reason, count(*) AS rows, count(DISTINCT l.tenant) AS tenants, min(l.created) AS oldest, max(l.created) AS newest
FROM dead_letter AS l
WHERE ($1::text IS NULL OR l.class = $1) AND ($2::text IS NULL OR l.reason = $2) AND ($3::text IS NULL OR l.tenant = $3) AND ($4::text IS NULL OR l.lane = $4)
GROUP BY l.class, l.reason
ORDER BY count(*) DESC, l.class, l.reason
LIMIT $5;
