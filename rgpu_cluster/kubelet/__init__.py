"""What talks to a kubelet: the plugin for claims, and the device plugin for old units."""
