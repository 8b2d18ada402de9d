"""Learning: from hyperparameters to an objective, its gradient and its maximum."""
