"""Slide files into stores."""
