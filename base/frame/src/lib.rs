//! Frames, chains, pools, rings and the driver trait.
