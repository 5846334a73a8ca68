"""The project that this process serves, and the ledger of its studies."""
