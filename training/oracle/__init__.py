"""The oracle: what a schedule costs, before it runs."""
