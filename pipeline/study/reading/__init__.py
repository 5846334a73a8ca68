"""Readings of a study's slides by people: asked, ordered, answered, blinded."""
