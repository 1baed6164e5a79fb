"""A real PPO training in NumPy, small enough to read, recorded with everything that windsock has."""
