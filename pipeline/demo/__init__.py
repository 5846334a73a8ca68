"""The demonstration: real tissue in, the whole workflow, a report."""
