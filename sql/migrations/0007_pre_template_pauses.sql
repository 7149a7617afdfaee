-- 0007, before the code: templates can be paused too.

ALTER TABLE pause
  DROP CONSTRAINT pause_scope_check,
  ADD CONSTRAINT pause_scope_check CHECK (scope IN ('account', 'sender', 'tenant', 'lane', 'template'));
