//! A wire inside the process, with rate, delay and faults.
