"""mailstreams: an e-mail from the application's transaction to the recipient's state.

HTTP -> api -> email_outbox
email_outbox -> outbox_feed -> relay -> mail.outbox.<lane> -> sender -> SES
                                    -> mail.suppressions  -> suppression_table (inside each sender)
SES -> SNS -> events -> mail.delivery-events -> recipients -> facts, suppression -> outbox_feed
scheduler: due rows, expired leases, unknown outcomes, heartbeats
"""
