"""Kubernetes' interfaces between kubelet and plugins, generated from `protos/`."""
