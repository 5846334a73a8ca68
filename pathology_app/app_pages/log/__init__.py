"""The page of the project's log, and the log as a file."""
