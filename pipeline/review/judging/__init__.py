"""Viewers' coverage and judgements, slide by slide."""
