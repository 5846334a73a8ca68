"""The worklist: every slide of the project."""
