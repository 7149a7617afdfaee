-- What the role may not do. $1 tables: text[], $2 privileges: text[], of the same length; an object that is missing counts too.
SELECT t.name AS object, t.privilege
FROM unnest($1::text[], $2::text[]) AS t (name, privilege)
WHERE coalesce(NOT has_table_privilege(to_regclass(t.name), t.privilege), true)
UNION ALL
SELECT 'outbox_feed_seq', 'USAGE'
WHERE coalesce(NOT has_sequence_privilege(to_regclass('outbox_feed_seq'), 'USAGE'), true)
UNION ALL
SELECT p.oid::regprocedure::text, 'EXECUTE'
FROM pg_class AS c JOIN pg_proc AS p ON p.pronamespace = c.relnamespace AND p.proowner = c.relowner
WHERE c.oid = to_regclass('email_outbox') AND p.prorettype <> 'trigger'::regtype
  AND NOT has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1, 2
