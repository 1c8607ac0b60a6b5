"""The words of other systems that share GPUs, turned into requests of rgpu."""
