"""The stages of a study: one file each, which declares its settings, its work, its measures and its output's hash."""
