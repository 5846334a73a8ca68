"""Simulation of a schedule: costs of stages, links, the timeline, its drawing."""
