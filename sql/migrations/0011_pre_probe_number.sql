-- 0011, before the code: which probe of an open circuit is meant, when a sender tells what came of one.

ALTER TABLE send_rate ADD COLUMN probe_number bigint NOT NULL DEFAULT 0;
