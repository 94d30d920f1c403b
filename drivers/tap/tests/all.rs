//! All tests of TAPs, in one program: they begin with the same.

mod common;
mod discipline;
mod door;
mod handle;
mod names;
mod sends;
mod spread;
