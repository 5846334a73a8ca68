"""Run by Alembic: migrate over the connection that `pipeline.ledger.database` opened."""

from alembic import context

from pipeline.ledger.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
