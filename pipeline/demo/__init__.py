"""The demonstration: the whole workflow on real tissue, from slides to a report."""
