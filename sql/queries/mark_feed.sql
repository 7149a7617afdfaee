-- Notes what can be seen now, and at which position of the WAL. $1 slot text.
SELECT mark_feed($1);
