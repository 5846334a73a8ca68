"""Proof of a study: its log, its outputs, reports and signatures; reproduction of a sample; erasure of a slide."""
