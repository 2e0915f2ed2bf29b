"""What puts the features together into the two engines that the agent asks."""
