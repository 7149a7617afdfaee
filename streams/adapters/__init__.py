"""What talks to PostgreSQL, Kafka, SES and SNS. Adapters never import each other's stages or duties."""
