"""Prediction: the distribution of new observations, and what can be asked of it."""
