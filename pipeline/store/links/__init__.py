"""Where linked stores find the slides' files, and reading these."""
