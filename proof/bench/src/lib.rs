//! Side by side with the kernel, in one run.
