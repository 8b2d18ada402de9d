"""The families: what an observation is."""
