-- Recipients whom events reached since the scratch tables were begun that were not in the topic when its end was taken.
INSERT INTO rebuilt_meanwhile (recipient_key)
SELECT DISTINCT e.recipient_key FROM email_event AS e
WHERE e.received >= (SELECT at FROM rebuilt_began)
  AND NOT EXISTS (SELECT FROM rebuilt_event AS r WHERE r.event_id = e.event_id AND r.recipient_key = e.recipient_key)
ON CONFLICT DO NOTHING;
