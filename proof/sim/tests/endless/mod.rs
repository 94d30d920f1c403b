//! A connection that writes as much as it may for as long as the world lasts, and who reads it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::cell::RefCell;
use std::rc::Rc;

use firelane_lane::StreamInfo;
use firelane_sim::{App, Cx, Listener, Next, SocketConfig, StackId, Stream};
use firelane_socket::WriteError;

/// Writes for ever.
pub struct Source {
    pub v6: bool,
    pub from: StackId,
    pub to: StackId,
    pub sockets: SocketConfig,
    pub stream: Option<Stream>,
    /// What is known of each sender, of this one in place `n`.
    pub known: Rc<RefCell<Vec<Option<StreamInfo>>>>,
    pub n: usize,
}

impl App for Source {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        let Self { v6, from, to, sockets, .. } = *self;
        if let Some(stream) = &self.stream
            && let Some(info) = stream.info(cx.sim())
        {
            self.known.borrow_mut()[self.n] = Some(info);
        }
        let stream = self
            .stream
            .get_or_insert_with(|| cx.connect(from, to.at(v6, 80), sockets.rings, sockets.options));
        if !stream.poll_connected().expect("the path carries") {
            return Next::Wait;
        }
        let text = [7; 1 << 14];
        loop {
            match stream.write(cx, &text) {
                Ok(_) => {}
                Err(WriteError::WouldBlock) => return Next::Wait,
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn describe(&self) -> String {
        "a source".to_owned()
    }
}

/// Reads everything, and counts.
pub struct Sink {
    pub v6: bool,
    pub at: StackId,
    pub sockets: SocketConfig,
    pub listener: Option<Listener>,
    pub streams: Vec<Stream>,
    pub count: Rc<RefCell<u64>>,
}

impl App for Sink {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        let Self { v6, at, sockets, .. } = *self;
        let listener = self
            .listener
            .get_or_insert_with(|| cx.listen(at, at.at(v6, 80), 128, sockets.rings, sockets.options));
        while let Some(stream) = listener.accept(cx) {
            self.streams.push(stream);
        }
        let mut buffer = [0; 1 << 16];
        for stream in &mut self.streams {
            while let Ok(count @ 1..) = stream.read(cx, &mut buffer) {
                *self.count.borrow_mut() += count as u64;
            }
        }
        Next::Wait
    }

    fn describe(&self) -> String {
        "a sink".to_owned()
    }
}
