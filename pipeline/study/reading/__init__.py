"""Readings of a study's slides by people: questions, order, answers, blinding."""
