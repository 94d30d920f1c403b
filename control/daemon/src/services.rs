//! The services that the daemon runs: ordinary programs on Firelane's sockets, each a task of its own.
//!
//! Called by `works.rs`. A service that cannot start is an error of its step and of nothing else.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use firelane::{ListenConfig, Stack, TcpListener, TcpStream, UdpSocket};
use firelane_api::{ApiError, Status};
use firelane_http::Files;
use firelane_model::{Service, ServiceKind, ServiceName};
use firelane_simple::Simple;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::folder;
use crate::text::plain;

/// The most connections of one service; more wait in its listener. Ten times what the idle benchmark holds.
const CONNECTIONS_MAX: usize = 10_240;

/// How many connections a service lets wait: browsers and load generators open many at once.
const BACKLOG: usize = 1024;

/// The services that run.
#[derive(Debug)]
pub(crate) struct Services {
    runtime: Handle,
    data: PathBuf,
    running: BTreeMap<ServiceName, Running>,
}

#[derive(Debug)]
struct Running {
    /// What listens, and what has a datagram socket.
    tasks: Vec<JoinHandle<()>>,
    /// What new connections serve, if the kind serves a folder.
    files: Option<watch::Sender<Files>>,
}

impl Services {
    /// None yet. Relative folders begin at `data`.
    pub(crate) fn new(runtime: Handle, data: PathBuf) -> Self {
        Self { runtime, data, running: BTreeMap::new() }
    }

    /// Whether a service's folder is one, or could be made.
    pub(crate) fn check(&self, service: &Service) -> Result<(), ApiError> {
        if !service.kind.has_root() {
            return Ok(());
        }
        let root = self.root_of(&service.root);
        // A symbolic link is there, too, and nothing else can be made in its place.
        let nearest = root.ancestors().find(|it| std::fs::symlink_metadata(it).is_ok());
        let fits = match nearest {
            Some(folder) if !folder.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            Some(folder) if folder != root => folder::may_have_more(folder),
            _ => Ok(()),
        };
        fits.map_err(|error| ApiError::new(Status::Io, "root", root.display(), plain(&error)))
    }

    /// Begins a service on every address of `stack`.
    pub(crate) fn start(
        &mut self,
        name: &ServiceName,
        service: &Service,
        stack: &Stack,
    ) -> Result<(), ApiError> {
        let running = match simple(service.kind) {
            None => self.start_http(name, service, stack)?,
            Some(kind) => self.start_simple(name, service, kind, stack)?,
        };
        self.running.insert(name.clone(), running);
        Ok(())
    }

    fn start_http(&self, name: &ServiceName, service: &Service, stack: &Stack) -> Result<Running, ApiError> {
        let files = self.files(service)?;
        let listener = listen(service, stack)?;
        let (files, current) = watch::channel(files);
        let serve = move |stream| {
            let files = current.borrow().clone();
            async move { firelane_http::serve(stream, &files).await }
        };
        let task = self.runtime.spawn(serve_all(name.clone(), listener, serve));
        Ok(Running { tasks: vec![task], files: Some(files) })
    }

    fn start_simple(
        &self,
        name: &ServiceName,
        service: &Service,
        kind: Simple,
        stack: &Stack,
    ) -> Result<Running, ApiError> {
        let listener = listen(service, stack)?;
        let refused = |error: io::Error| port_refused(service, &error);
        let socket = UdpSocket::bind(stack, everywhere(service)).map_err(refused)?;
        let serve = move |stream| firelane_simple::serve(kind, stream);
        let streams = self.runtime.spawn(serve_all(name.clone(), listener, serve));
        let name = name.clone();
        let datagrams = self.runtime.spawn(async move {
            let Err(error) = firelane_simple::answer(kind, socket).await;
            tracing::warn!("service {name}: datagrams: {error}");
        });
        Ok(Running { tasks: vec![streams, datagrams], files: None })
    }

    /// Changes the folder that new connections see.
    pub(crate) fn change(&mut self, name: &ServiceName, service: &Service) -> Result<(), ApiError> {
        let running = self.running.get(name).ok_or(Status::NotFound)?;
        if let Some(current) = &running.files {
            current.send_replace(self.files(service)?);
        }
        Ok(())
    }

    /// Ends a service and its connections, and waits until its port is free.
    pub(crate) fn stop(&mut self, name: &ServiceName) {
        for task in self.running.remove(name).into_iter().flat_map(|running| running.tasks) {
            task.abort();
            // It ends cancelled, which is no news.
            let _ = self.runtime.block_on(task);
        }
    }

    /// Ends every service.
    pub(crate) fn stop_all(&mut self) {
        for name in self.running.keys().cloned().collect::<Vec<_>>() {
            self.stop(&name);
        }
    }

    fn files(&self, service: &Service) -> Result<Files, ApiError> {
        let root = self.root_of(&service.root);
        Files::new(&root).map_err(|error| ApiError::new(Status::Io, "root", root.display(), plain(&error)))
    }

    fn root_of(&self, root: &Path) -> PathBuf {
        self.data.join(root)
    }
}

/// The service of a kind that needs nothing but streams and datagrams.
fn simple(kind: ServiceKind) -> Option<Simple> {
    match kind {
        ServiceKind::Http => None,
        ServiceKind::Echo => Some(Simple::Echo),
        ServiceKind::Discard => Some(Simple::Discard),
        ServiceKind::Chargen => Some(Simple::Chargen),
        ServiceKind::Sink => Some(Simple::Sink),
    }
}

/// A service's port on every address, of both families.
fn everywhere(service: &Service) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), service.port.0)
}

fn listen(service: &Service, stack: &Stack) -> Result<TcpListener, ApiError> {
    let refused = |error: io::Error| port_refused(service, &error);
    let rings = stack.sockets().map_err(refused)?.stream;
    let config = ListenConfig { backlog: BACKLOG, rings, keepalive: true, ..ListenConfig::default() };
    TcpListener::bind_with(stack, everywhere(service), config).map_err(refused)
}

/// Whether a service could listen on its port now.
pub(crate) fn check_port(service: &Service, stack: &Stack) -> Result<(), ApiError> {
    stack.check_listener(everywhere(service)).map_err(|error| port_refused(service, &error))
}

fn port_refused(service: &Service, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let allowed = format!("another listener of netstack {} has it", service.netstack);
            ApiError::new(Status::AddrInUse, "port", service.port, allowed)
        }
        _ => ApiError::new(Status::Io, "port", service.port, plain(&error)),
    }
}

/// Accepts until the task is cancelled or the netstack removed; the connections end with it.
async fn serve_all<F>(name: ServiceName, listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept_async(), if connections.len() < CONNECTIONS_MAX => {
                // A netstack that is gone takes its connections along.
                let Ok((stream, from)) = accepted else { return };
                let (name, served) = (name.clone(), serve(stream));
                connections.spawn(async move {
                    if let Err(error) = served.await {
                        tracing::debug!("service {name}: {from}: {error}");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
