"""Kubernetes' interface between kubelet and container runtime, generated from `protos/`."""
