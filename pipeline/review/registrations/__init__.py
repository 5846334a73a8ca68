"""Saved registrations of two slides, from tissue or from clicked points."""
