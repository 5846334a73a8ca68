"""Progress of a study and outcomes of its slides: failures, remedies, retries, priorities, search."""
