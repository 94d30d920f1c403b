//! The atomics and the cell that the squeue is built of: the standard ones, or loom's in its model.
//!
//! Only `perimeter.rs` and `squeue.rs` use this. The cell has loom's interface (a guard instead of a bare
//! pointer), so that the model sees every access and the release build pays nothing for it.

#[cfg(loom)]
pub(crate) use loom::{
    cell::{MutPtr, UnsafeCell},
    sync::atomic::{AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub(crate) use self::plain::{AtomicUsize, MutPtr, Ordering, UnsafeCell};

#[cfg(not(loom))]
mod plain {
    pub(crate) use core::sync::atomic::{AtomicUsize, Ordering};

    /// [`core::cell::UnsafeCell`] with loom's interface.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    /// A pointer to the content of an [`UnsafeCell`].
    #[derive(Debug)]
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> MutPtr<T> {
        pub(crate) fn as_ptr(&self) -> *mut T {
            self.0
        }
    }
}
