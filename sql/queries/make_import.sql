-- Takes in the keys of a file; gone with the transaction.
CREATE TEMPORARY TABLE imported_recipient (recipient_key text NOT NULL) ON COMMIT DROP;
