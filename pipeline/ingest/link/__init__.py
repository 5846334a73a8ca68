"""Linked stores: viewable before anything is copied, verified afterwards, made full when wanted."""
