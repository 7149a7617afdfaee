-- Counts what a page did. $1 scope text, $2 suppressed, $3 lifted int.
UPDATE provider_list SET suppressed = suppressed + $2::int, lifted = lifted + $3::int WHERE scope = $1;
