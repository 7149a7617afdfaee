-- Which transactions are seen at the moment.
SELECT pg_current_snapshot()::text
