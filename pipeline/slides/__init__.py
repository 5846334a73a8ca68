"""Readers of scanned slides: one file per reader behind one `Slide` interface."""
