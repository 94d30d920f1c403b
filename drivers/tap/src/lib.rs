//! TAP with virtio-net header and segmentation offload.
