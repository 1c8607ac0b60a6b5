"""Messages and services of the control plane, generated from `protos/`."""
