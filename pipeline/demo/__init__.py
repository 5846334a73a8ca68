"""The demonstration: real tissue in, the whole road, a report."""
