-- Lifts a pause of the account that the same has made. $1 value text, $2 who text.
DELETE FROM pause WHERE scope = 'account' AND value = $1 AND who = $2 RETURNING true;
