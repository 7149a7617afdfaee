-- A relay in polling mode ends; those that ended without saying so are forgotten too. $1 id: uuid.
DELETE FROM relay_poller WHERE id = $1 OR expires < clock_timestamp() - interval '1 hour'
