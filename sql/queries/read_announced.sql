-- Recipients of whom the feed has ever told suppressions, lifted ones too, in the order of their keys. $1 behind this key text, $2 so many int.
SELECT recipient_key FROM suppressed_recipient WHERE recipient_key > $1 ORDER BY recipient_key LIMIT $2;
