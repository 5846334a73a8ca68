"""The rows of reviews in the project's ledger, and whose they are."""
