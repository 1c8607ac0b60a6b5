"""NVIDIA's management library (NVML) as data: types, and what each function answers."""
