-- Lifts a pause of the account that the same has made, and what senders paused for the whole account meanwhile: they try for themselves. True where there was one. $1 value text, $2 who text.
WITH lifted AS (
  DELETE FROM pause WHERE scope = 'account' AND value = $1 AND who = $2 RETURNING true AS was
),
tried AS (
  DELETE FROM pause AS p USING lifted WHERE p.scope = 'account' AND p.value = '*' AND p.who = 'sender'
)
SELECT was FROM lifted
