"""Decides where a request for GPUs is placed. Pure: no input, output, clock or random numbers.

Device time is counted in millionths of a card (ppm), memory in bytes, bandwidth in bits a second.
"""
