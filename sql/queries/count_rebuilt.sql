-- How many rows were rebuilt, and of how many recipients nothing is compared.
SELECT (SELECT count(*) FROM rebuilt_event) AS email_event, (SELECT count(*) FROM rebuilt_outcome) AS recipient_outcome,
  (SELECT count(*) FROM rebuilt_state WHERE num_nonnulls(last_delivery, hard_bounce, complaint, soft_bounces_since) > 0) AS recipient_state,
  (SELECT count(*) FROM rebuilt_suppression) AS suppression, (SELECT count(*) FROM rebuilt_meanwhile) AS meanwhile;
