-- Tables of this session alone, in which the fold finds nothing; while they stand they hide the live ones of their names.
CREATE TEMPORARY TABLE rebuilt_began AS SELECT clock_timestamp() AS at;
CREATE TEMPORARY TABLE email_event (LIKE email_event INCLUDING ALL);
CREATE TEMPORARY TABLE recipient_outcome (LIKE recipient_outcome INCLUDING ALL);
CREATE TEMPORARY TABLE recipient_state (LIKE recipient_state INCLUDING ALL);
CREATE TEMPORARY TABLE suppression (LIKE suppression INCLUDING ALL);
