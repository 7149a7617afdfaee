-- The call about the list is over; nobody makes another for so long. $1 scope text, $2 pause interval.
UPDATE provider_list SET next_call = clock_timestamp() + $2::interval WHERE scope = $1;
