"""Facts about every slide of a project, so that a list of a hundred thousand slides can be sorted and filtered."""
