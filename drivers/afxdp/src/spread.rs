//! By how many of a NIC's rings its frames come: its own table of queues (receive side scaling, ethtool's `-X`) names all
//! of them, or only those of the first rings.
//!
//! Made by `queue.rs` for the engine, which asks for fewer rings while frames pass. The program cannot do it: a frame may only go to
//! a socket of the queue that it has come by (`xsk_rcv_check` in the kernel), so the NIC itself has to choose another
//! queue. Who has no such table, a veth for one, sends by all its rings. The sockets of all queues stay, so a frame that comes by
//! another queue all the same (a rule of `ethtool -N`, one that was in it already) is fetched.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys;

/// `ETHTOOL_GRXFHINDIR`, `ETHTOOL_SRXFHINDIR`.
const GET_TABLE: u32 = 0x38;
const SET_TABLE: u32 = 0x39;
/// Tables that are longer are nobody's: a NIC's has some hundreds of places.
const TABLE_MAX: u32 = 1 << 16;

/// What deals a device's frames out to its queues.
pub(crate) trait Dealer {
    /// Which queue each hash means; nothing if it has no such table.
    fn table(&self) -> io::Result<Option<Vec<u32>>>;
    /// Other queues from the next frame on.
    fn set_table(&self, table: &[u32]) -> io::Result<()>;
}

/// An interface, by its number: its name may change.
#[derive(Debug)]
pub(crate) struct Nic {
    /// Of the interface's namespace, whichever thread asks.
    socket: OwnedFd,
    index: u32,
}

impl Nic {
    pub(crate) fn of(index: u32) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, index })
    }

    fn ask(&self, command: u32, table: &mut [u32]) -> io::Result<u32> {
        let name = rustix::net::netdevice::index_to_name(&self.socket, self.index)?;
        Ok(sys::queue_table(self.socket.as_fd(), &name, command, table)?)
    }
}

impl Dealer for Nic {
    fn table(&self) -> io::Result<Option<Vec<u32>>> {
        let length = match self.ask(GET_TABLE, &mut []) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => 0,
            Err(error) => return Err(error),
        };
        if length == 0 || length > TABLE_MAX {
            return Ok(None);
        }
        let mut table = vec![0; length as usize];
        self.ask(GET_TABLE, &mut table)?;
        Ok(Some(table))
    }

    fn set_table(&self, table: &[u32]) -> io::Result<()> {
        self.ask(SET_TABLE, &mut table.to_vec()).map(drop)
    }
}

/// A device, and its table as it was found; so it becomes again when nobody has the device any more.
#[derive(Debug)]
pub(crate) struct Dealing<D: Dealer> {
    device: D,
    /// Its queues.
    queues: u32,
    /// The rings that they are shared out to, one after the other.
    rings: u16,
    found: Mutex<Option<Vec<u32>>>,
}

impl<D: Dealer> Dealing<D> {
    pub(crate) fn new(device: D, queues: u32, rings: u16) -> Self {
        Self { device, queues, rings, found: Mutex::new(None) }
    }

    fn has_table(&self) -> io::Result<bool> {
        Ok(self.device.table()?.is_some())
    }

    fn spread(&self, rings: Option<u16>) -> io::Result<()> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rings) = rings else {
            if let Some(table) = found.as_deref() {
                self.device.set_table(table)?;
            }
            *found = None;
            return Ok(());
        };
        let table = self.device.table()?.ok_or(Errno::OPNOTSUPP)?;
        self.device.set_table(&dealt(table.len(), self.queues, self.rings, rings))?;
        found.get_or_insert(table);
        Ok(())
    }
}

impl<D: Dealer> Drop for Dealing<D> {
    fn drop(&mut self) {
        // Where that fails, the interface is gone, and its table with it.
        let _ = self.spread(None);
    }
}

/// A table of so many places that names the queues of the first `rings` of `all` rings, each as often as the others.
fn dealt(places: usize, queues: u32, all: u16, rings: u16) -> Vec<u32> {
    let (all, rings) = (u32::from(all.max(1)), u32::from(rings.max(1)));
    (0..queues).filter(|queue| queue % all < rings).cycle().take(places).collect()
}

/// What tells a NIC by which of its rings frames are to come.
#[derive(Debug)]
pub struct Spreader(pub(crate) Arc<Dealing<Nic>>);

impl Spreader {
    /// One for a device that can be told.
    pub(crate) fn of(dealing: &Arc<Dealing<Nic>>) -> Option<io::Result<Self>> {
        match dealing.has_table() {
            Ok(true) => Some(Ok(Self(Arc::clone(dealing)))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Frames come by the queues of the first `rings` rings from now on, each conversation by one of them; without a number as they
    /// came before anything was said.
    ///
    /// # Errors
    /// The device refuses, or this process may not tell it.
    pub fn spread(&self, rings: Option<u16>) -> io::Result<()> {
        self.0.spread(rings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[derive(Default)]
    struct Fake {
        table: Rc<Mutex<Vec<u32>>>,
        refuses: bool,
    }

    impl Dealer for Fake {
        fn table(&self) -> io::Result<Option<Vec<u32>>> {
            Ok(Some(self.table.lock().unwrap().clone()).filter(|it| !it.is_empty()))
        }

        fn set_table(&self, table: &[u32]) -> io::Result<()> {
            if self.refuses {
                return Err(Errno::INVAL.into());
            }
            *self.table.lock().unwrap() = table.to_vec();
            Ok(())
        }
    }

    #[test]
    fn a_table_names_the_queues_of_the_first_rings_each_as_often() {
        for (queues, all, rings, want) in [
            (4, 4, 1, vec![0, 0, 0, 0, 0, 0, 0, 0]),
            (4, 4, 2, vec![0, 1, 0, 1, 0, 1, 0, 1]),
            (4, 4, 3, vec![0, 1, 2, 0, 1, 2, 0, 1]),
            (4, 4, 4, vec![0, 1, 2, 3, 0, 1, 2, 3]),
            // Two rings share five queues: 0, 2 and 4 are the first one's.
            (5, 2, 1, vec![0, 2, 4, 0, 2, 4, 0, 2]),
            (1, 1, 1, vec![0; 8]),
        ] {
            assert_eq!(dealt(8, queues, all, rings), want, "{rings} of {all} rings, {queues} queues");
        }
    }

    #[test]
    fn the_table_that_was_found_comes_back() {
        let found = vec![3, 3, 1, 0, 2, 2, 2, 2];
        let table = Rc::new(Mutex::new(found.clone()));
        let now = || table.lock().unwrap().clone();
        let fake = || Fake { table: Rc::clone(&table), refuses: false };
        let dealing = Dealing::new(fake(), 4, 4);
        assert!(dealing.has_table().unwrap());
        dealing.spread(None).unwrap();
        assert_eq!(now(), found, "nothing was said");
        dealing.spread(Some(2)).unwrap();
        dealing.spread(Some(1)).unwrap();
        assert_eq!(now(), [0; 8]);
        dealing.spread(None).unwrap();
        assert_eq!(now(), found, "not what it was made in between");
        dealing.spread(Some(3)).unwrap();
        drop(dealing);
        assert_eq!(now(), found, "nobody has the device");
        // What somebody else has said since is what is found the next time, and is left alone by who says nothing.
        *table.lock().unwrap() = vec![1; 8];
        drop(Dealing::new(fake(), 4, 4));
        assert_eq!(now(), [1; 8]);
    }

    #[test]
    fn who_has_no_table_or_refuses_is_as_before() {
        let none = Dealing::new(Fake::default(), 4, 4);
        assert!(!none.has_table().unwrap());
        assert_eq!(none.spread(Some(1)).unwrap_err().raw_os_error(), Some(Errno::OPNOTSUPP.raw_os_error()));
        let table = Rc::new(Mutex::new(vec![0, 1, 2, 3]));
        let refuses = Dealing::new(Fake { table: Rc::clone(&table), refuses: true }, 4, 4);
        assert!(refuses.spread(Some(1)).is_err());
        assert!(refuses.found.lock().unwrap().is_none(), "there is nothing to take back");
        refuses.spread(None).unwrap();
        assert_eq!(*table.lock().unwrap(), [0, 1, 2, 3]);
    }
}
