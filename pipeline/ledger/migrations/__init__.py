"""Changes to the tables, one file per change, in order; run by Alembic."""
