//! Connections in number: opened, a byte each way, and closed through TIME-WAIT, between two stacks on a wire of memory.
//!
//! Both lanes and both programs take turns on this thread, so what it does depends on nothing else: instructions are counted
//! repeatably (`valgrind --tool=callgrind target/release/examples/connections 20000`), and the CPU time per connection is
//! compared between two builds. The measure itself is `make bench B=conn-rate`.

use std::error::Error;
use std::io::{ErrorKind, Result as IoResult};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firelane::{
    Event, ListenConfig, Poller, Ran, Ready, Stack, StreamConfig, TcpListener, TcpStream, WireConfig, Worker,
    wire,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u16 = 80;
/// Addresses on each side.
const ADDRESSES: u8 = 64;
/// Connections under way at once.
const AT_ONCE: usize = 256;
/// How many there are if nobody says.
const USUAL: u64 = 1_000_000;
const RINGS: StreamConfig = StreamConfig { send_capacity: 512, recv_capacity: 512 };

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1).map_or(Ok(USUAL), |word| word.parse())?;
    let (one, two) = wire(WireConfig::default());
    let stack = |end, mac: &str, net: u8| {
        let mut builder = Stack::builder().driven().interface(end).mac(mac)?;
        for host in 1..=ADDRESSES {
            builder = builder.address(&format!("10.0.{net}.{host}/16"))?;
        }
        builder.build()
    };
    let (here, there) = (stack(one, "02:08:20:00:00:01", 1)?, stack(two, "02:08:20:00:00:02", 2)?);
    let mut workers: Vec<Worker> =
        [&here, &there].iter().flat_map(|stack| stack.engine().workers()).collect();
    let (mut server, mut client) = (Server::new(&there)?, Client::new(&here));
    let (start, mut done) = (Instant::now(), 0);
    while done < wanted {
        for worker in &mut workers {
            assert_ne!(worker.run_once(Some(Duration::ZERO)), Ran::Failed, "the lane is in service");
        }
        done += client.run()?;
        server.run()?;
    }
    let each = start.elapsed().as_secs_f64() / done as f64;
    println!("{done} connections: {:.2} us each, {:.0} per second of each lane", each * 1e6, 2.0 / each);
    Ok(())
}

/// `None` for what would block.
fn some<T>(result: IoResult<T>) -> IoResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who answers: a byte for a byte, until the peer closes.
struct Server {
    listener: TcpListener,
    streams: Places,
}

impl Server {
    fn new(stack: &Stack) -> Result<Self> {
        let config = ListenConfig { backlog: 4096, rings: RINGS, ..ListenConfig::default() };
        let listener = TcpListener::bind_with(stack, SocketAddr::from(([0, 0, 0, 0], PORT)), config)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, streams: Places::default() })
    }

    fn run(&mut self) -> Result<()> {
        while let Some((stream, _)) = some(self.listener.accept())? {
            self.streams.add(stream, Ready::READABLE)?;
        }
        self.streams.wait();
        while let Some(place) = self.streams.events.pop() {
            let mut byte = [0];
            let Some(stream) = self.streams.get(place.key) else { continue };
            match some(stream.try_read(&mut byte))? {
                Some(1) => drop(stream.try_write(&byte)?),
                Some(_) => self.streams.remove(place.key),
                None => {}
            }
        }
        Ok(())
    }
}

/// Who asks, and closes first.
struct Client {
    stack: Stack,
    streams: Places,
    /// Which places have asked.
    asked: Vec<bool>,
    next: usize,
}

impl Client {
    fn new(stack: &Stack) -> Self {
        Self { stack: stack.clone(), streams: Places::default(), asked: vec![false; AT_ONCE], next: 0 }
    }

    /// How many connections have had their byte and were closed.
    fn run(&mut self) -> Result<u64> {
        while self.streams.len() < AT_ONCE {
            self.next += 1;
            let host = |net: u8, n: usize| [10, 0, net, (n % usize::from(ADDRESSES)) as u8 + 1];
            let local = SocketAddr::from((host(1, self.next), 0));
            let remote = SocketAddr::from((host(2, self.next / usize::from(ADDRESSES)), PORT));
            let stream = TcpStream::begin_from(&self.stack, Some(local), remote, RINGS)?;
            self.streams.add(stream, Ready::READABLE | Ready::WRITABLE)?;
        }
        let mut done = 0;
        self.streams.wait();
        while let Some(place) = self.streams.events.pop() {
            let asked = &mut self.asked[place.key as usize];
            let Some(stream) = self.streams.get(place.key) else { continue };
            if !*asked {
                *asked = some(stream.try_write(&[7]))? == Some(1);
            } else if some(stream.try_read(&mut [0]))? == Some(1) {
                *asked = false;
                self.streams.remove(place.key);
                done += 1;
            }
        }
        Ok(done)
    }
}

/// Connections behind one poller, in places that are used again.
#[derive(Default)]
struct Places {
    poller: Poller,
    events: Vec<Event>,
    places: Vec<Option<TcpStream>>,
    free: Vec<usize>,
}

impl Places {
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn add(&mut self, stream: TcpStream, interest: Ready) -> IoResult<()> {
        let place = self.free.pop().unwrap_or(self.places.len());
        self.poller.watch(&stream, place as u64, interest)?;
        if place == self.places.len() {
            self.places.push(Some(stream));
        } else {
            self.places[place] = Some(stream);
        }
        Ok(())
    }

    fn get(&self, key: u64) -> Option<&TcpStream> {
        self.places.get(key as usize)?.as_ref()
    }

    fn remove(&mut self, key: u64) {
        if self.places.get_mut(key as usize).and_then(Option::take).is_some() {
            self.free.push(key as usize);
        }
    }

    fn wait(&mut self) {
        self.poller.wait(&mut self.events, Some(Duration::ZERO));
    }
}
