"""Proof of a study: its log, its outputs, reports and signatures; a sample done again; a slide erased."""
