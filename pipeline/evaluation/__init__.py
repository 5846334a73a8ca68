"""How good predictions are, and the report that says so."""
