"""The computer under a run: threads, memory, pipes between its processes."""
