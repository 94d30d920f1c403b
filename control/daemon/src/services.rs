//! The services that the daemon runs: ordinary programs on Firelane's sockets, each a task of its own.
//!
//! Called by `works.rs`. A service that cannot start is an error of its step and of nothing else.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use firelane::{ListenConfig, Stack, TcpListener};
use firelane_api::{ApiError, Status};
use firelane_http::Files;
use firelane_model::{Service, ServiceKind, ServiceName};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

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
    task: JoinHandle<()>,
    files: watch::Sender<Files>,
}

impl Services {
    /// None yet. Relative folders begin at `data`.
    pub(crate) fn new(runtime: Handle, data: PathBuf) -> Self {
        Self { runtime, data, running: BTreeMap::new() }
    }

    /// Begins a service on every address of `stack`.
    pub(crate) fn start(
        &mut self,
        name: &ServiceName,
        service: &Service,
        stack: &Stack,
    ) -> Result<(), ApiError> {
        let ServiceKind::Http = service.kind;
        let files = self.files(service)?;
        let everywhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), service.port.0);
        let refused = |error: io::Error| port_refused(service, &error);
        let rings = stack.sockets().map_err(refused)?.stream;
        let config = ListenConfig { backlog: BACKLOG, rings, keepalive: true, ..ListenConfig::default() };
        let listener = TcpListener::bind_with(stack, everywhere, config).map_err(refused)?;
        let (files, current) = watch::channel(files);
        let task = self.runtime.spawn(serve_all(name.clone(), listener, current));
        self.running.insert(name.clone(), Running { task, files });
        Ok(())
    }

    /// Changes the folder that new connections see.
    pub(crate) fn change(&mut self, name: &ServiceName, service: &Service) -> Result<(), ApiError> {
        let files = self.files(service)?;
        self.running.get(name).ok_or(Status::NotFound)?.files.send_replace(files);
        Ok(())
    }

    /// Ends a service and its connections, and waits until its port is free.
    pub(crate) fn stop(&mut self, name: &ServiceName) {
        if let Some(running) = self.running.remove(name) {
            running.task.abort();
            // It ends cancelled, which is no news.
            let _ = self.runtime.block_on(running.task);
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

fn port_refused(service: &Service, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let allowed = format!("another listener of netstack {} has it", service.netstack);
            ApiError::new(Status::AddrInUse, "port", service.port, allowed)
        }
        _ => ApiError::new(Status::Io, "port", service.port, plain(&error)),
    }
}

/// Accepts until the task is cancelled; the connections end with it.
async fn serve_all(name: ServiceName, listener: TcpListener, files: watch::Receiver<Files>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, from) = listener.accept_async(), if connections.len() < CONNECTIONS_MAX => {
                let (name, files) = (name.clone(), files.borrow().clone());
                connections.spawn(async move {
                    if let Err(error) = firelane_http::serve(stream, &files).await {
                        tracing::debug!("service {name}: {from}: {error}");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
