"""Evaluation of slide-level models: predictions of whole patients or slides against their targets."""
