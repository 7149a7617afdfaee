-- The migrations that are applied, with the checksums of their texts.
SELECT name, checksum FROM schema_migration ORDER BY name
