"""The device plugin: countable units of other projects, such as `tencent.com/vcuda-core`."""
