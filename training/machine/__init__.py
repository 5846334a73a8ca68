"""The machine that a run uses: threads, memory, pipes between its processes."""
