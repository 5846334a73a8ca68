"""The line shown on every card, report, image and page."""

RESEARCH_USE = "Research use only. Not for diagnosis."
