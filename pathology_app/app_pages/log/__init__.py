"""The project's log as a page and as a file."""
