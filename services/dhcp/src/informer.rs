//! A question to the servers of an interface at work: the state machine of `v4/inform.rs` with a socket and a clock.
//!
//! One tokio task for each question, begun by the daemon when the operator asks. It ends with its answer or without one,
//! so that DHCP's port is free again; what was answered stays until the next answer, or until the address goes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firelane::{Stack, UdpSocket};
use firelane_units::{Family, LinkId};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::awaiting::Awaiting;
use crate::clock::Clock;
use crate::outcome::Counters;
use crate::task::{CLIENT_PORT, MESSAGE_MAX, SERVER_PORT, SOCKET_WAIT};
use crate::v4::{Inform, InformConfig, InformPhase, Network};

/// How far a question is, and what is known.
#[derive(Clone, Debug)]
pub struct Informed {
    /// How far.
    pub phase: InformPhase,
    /// The last answer.
    pub network: Option<Network>,
    /// What was seen, by earlier questions too.
    pub counters: Counters,
}

/// A question that runs or has ended.
#[derive(Debug)]
pub struct Informer {
    /// `None` if it was ended before it had its answer.
    task: Option<JoinHandle<()>>,
    link: LinkId,
    own: SocketAddr,
    known: Arc<Mutex<Informed>>,
}

impl Informer {
    /// Asks on `link` of `stack`. What `before` has known is known until there is an answer.
    ///
    /// # Errors
    /// Its socket cannot be opened: the netstack does not have the address, or a program has DHCP's port.
    pub fn start(
        runtime: &Handle,
        stack: &Stack,
        link: LinkId,
        config: InformConfig,
        before: Option<Informed>,
    ) -> io::Result<Self> {
        let own = SocketAddr::new(config.addr.into(), CLIENT_PORT);
        let socket = UdpSocket::bind_on(stack, own, link)?;
        socket.set_broadcast(true)?;
        let clock = Clock::begin();
        let inform = Inform::new(clock.now(), config);
        let (network, base) = before.map_or((None, Counters::default()), |it| (it.network, it.counters));
        let known = Informed { phase: inform.phase(), network, counters: base };
        let known = Arc::new(Mutex::new(known));
        let awaiting = Awaiting::new(stack, link, Family::V4);
        let at_work = AtWork { inform, clock, socket, awaiting, known: Arc::clone(&known), base };
        Ok(Self { task: Some(runtime.spawn(at_work.run())), link, own, known })
    }

    /// Which link it asks on.
    pub const fn link(&self) -> LinkId {
        self.link
    }

    /// What its socket is bound to, as long as it has one.
    pub fn socket(&self) -> Option<SocketAddr> {
        self.task.as_ref().filter(|task| !task.is_finished()).map(|_| self.own)
    }

    /// How far it is.
    pub fn report(&self) -> Informed {
        lock(&self.known).clone()
    }

    /// Ends the question, so that DHCP's port is free. What is known stays known.
    pub fn end(&mut self, runtime: &Handle) {
        if let Some(task) = self.task.take() {
            task.abort();
            // It ends cancelled, which is no news; its socket is closed when that is so.
            let _ = runtime.block_on(task);
            let mut known = lock(&self.known);
            if known.phase == InformPhase::Informing {
                known.phase = InformPhase::Unanswered;
            }
        }
    }

    /// Ends it, and gives away what is known.
    pub fn stop(mut self, runtime: &Handle) -> Informed {
        self.end(runtime);
        lock(&self.known).clone()
    }
}

fn lock(known: &Mutex<Informed>) -> MutexGuard<'_, Informed> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the task owns.
struct AtWork {
    inform: Inform,
    clock: Clock,
    socket: UdpSocket,
    awaiting: Awaiting,
    known: Arc<Mutex<Informed>>,
    /// What earlier questions have seen.
    base: Counters,
}

impl AtWork {
    async fn run(mut self) {
        let mut bytes = [0; MESSAGE_MAX];
        let everybody = SocketAddr::new(Ipv4Addr::BROADCAST.into(), SERVER_PORT);
        while self.inform.phase() == InformPhase::Informing {
            self.awaiting.follow(self.inform.open());
            if let Some(question) = self.inform.poll(self.clock.now())
                && let Err(error) = self.socket.send_to_async(&question, everybody).await
            {
                tracing::debug!("DHCPINFORM to {everybody}: {error}");
            }
            if self.inform.phase() != InformPhase::Informing {
                break;
            }
            Self::note(&self.inform, &self.known, self.base);
            tokio::select! {
                () = self.clock.reach(self.inform.poll_at()) => {}
                received = self.socket.recv_from_async(&mut bytes) => match received {
                    Ok((len, from)) if from.port() == SERVER_PORT => self.inform.on_message(&bytes[..len]),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!("DHCP socket: {error}");
                        tokio::time::sleep(SOCKET_WAIT).await;
                    }
                },
            }
        }
        // Who sees that the question has ended may ask again at once, for which the port must be free.
        let Self { inform, socket, awaiting, known, base, .. } = self;
        drop((awaiting, socket));
        Self::note(&inform, &known, base);
    }

    fn note(inform: &Inform, known: &Mutex<Informed>, base: Counters) {
        let mut known = lock(known);
        known.phase = inform.phase();
        known.counters = base.plus(inform.counters());
        if let Some(network) = inform.network() {
            known.network = Some(network.clone());
        }
    }
}
