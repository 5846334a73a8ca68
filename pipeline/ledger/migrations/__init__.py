"""Changes of the tables, one file for each, in order; run by Alembic."""
