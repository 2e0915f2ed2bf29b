"""Combines the features into the two engines that the agent calls."""
