-- What has to be deleted from the provider's list, and of how much of it no address is known.
SELECT count(*) FILTER (WHERE address IS NOT NULL) AS waiting, count(*) FILTER (WHERE address IS NULL) AS without_address
FROM provider_unlisting;
