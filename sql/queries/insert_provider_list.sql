-- Makes the row of a region's list that is not there yet, with the wish that it be imported. $1 scope text.
INSERT INTO provider_list (scope) VALUES ($1) ON CONFLICT DO NOTHING;
