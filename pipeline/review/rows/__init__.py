"""The rows that reviews keep in the project's ledger, and for whom."""
