"""Coverage by viewers, and their judgements, slide by slide."""
