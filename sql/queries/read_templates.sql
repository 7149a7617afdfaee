-- The templates asked for; version NULL is the newest one.
-- $1 tenants text[], $2 names text[], $3 versions int[]
SELECT a.tenant, a.name, a.version AS asked_version, t.version, t.subject, t.text, t.html
FROM unnest($1::text[], $2::text[], $3::int[]) AS a (tenant, name, version)
CROSS JOIN LATERAL (
  SELECT t.version, t.subject, t.text, t.html FROM template AS t
  WHERE t.tenant = a.tenant AND t.name = a.name AND (a.version IS NULL OR t.version = a.version)
  ORDER BY t.version DESC LIMIT 1
) AS t
