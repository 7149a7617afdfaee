-- Makes the row of a duty that is not there yet. $1 name text.
INSERT INTO scheduler_duty (name) VALUES ($1) ON CONFLICT DO NOTHING;
