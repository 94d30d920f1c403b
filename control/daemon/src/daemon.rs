//! From the command line to a running host, and back to nothing.
//!
//! Called by `main.rs`. Order: the configuration file is read before anything is touched; folders are locked
//! before anything in them is used; what an earlier daemon left is cleaned before anything is made; the socket
//! exists from then on, and answers once the configuration is carried out.

use std::fmt;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firelane::{Engine, EngineConfig};
use firelane_model::{LANES_AUTO_MAX, LANES_MAX, Lanes, MODEL_TEXT_MAX, Model};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::args::{Args, Environment, Folders};
use crate::dhcp::Clients;
use crate::folder::{self, Lock, LockError};
use crate::history::History;
use crate::host::{self, Host, Parts};
use crate::kernel::Kernel;
use crate::listener;
use crate::programs::Programs;
use crate::ready::State as Told;
use crate::secret;
use crate::server;
use crate::signals;
use crate::state::{Found, State};
use crate::text::{first_of, plain};
use crate::works::Works;

/// The socket's name, in the runtime folder.
const SOCKET: &str = "api.sock";
/// The socket for programs, beside it.
const PROGRAMS: &str = "app.sock";
/// A TAP's queues: one for each lane up to so many, each a descriptor.
const QUEUES_MAX: usize = 8;
/// How long requests that are being answered are waited for at the end.
const AT_THE_END: Duration = Duration::from_secs(1);

/// Why the daemon ended before its time: one line, and the exit code.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) text: String,
    pub(crate) code: u8,
}

/// The operator's mistake.
fn mistake(text: impl fmt::Display) -> Refusal {
    Refusal { text: plain(&text), code: 2 }
}

/// The system's refusal.
fn failure(text: impl fmt::Display) -> Refusal {
    Refusal { text: plain(&text), code: 1 }
}

/// Runs the daemon until a signal ends it.
pub(crate) fn run(args: &Args) -> Result<(), Refusal> {
    let configured = args.config.as_deref().map(read_config).transpose()?;
    let folders = args.folders(&Environment::of_process()).map_err(mistake)?;
    let mut early = Vec::new();
    raise_descriptors();
    let _locks = take_folders(&folders, &mut early)?;
    if args.clean {
        clean(args, &folders);
        return Ok(());
    }
    // Whoever is tired of waiting for the end leaves to the next start what a killed daemon would.
    let ending = signals::listen(|| std::process::exit(1)).map_err(failure)?;
    let state = State::new(&folders.state);
    let (wanted, unkept) = choose_model(&state, configured, &mut early);
    let lanes = lane_count(args.lanes, wanted.daemon.lanes);
    let queues = u16::try_from(lanes.min(QUEUES_MAX)).unwrap_or(1);
    let mut kernel = Kernel::new(args.instance.clone(), &folders.state, queues);
    kernel.recover(&wanted);
    let socket = folders.runtime.join(SOCKET);
    let listener =
        server::bind(&socket).map_err(|error| failure(format!("{}: {error}", socket.display())))?;
    let (stable_secret, fault) = secret::read_or_draw(&folders.state);
    early.extend(fault);
    // One for each CPU that a link may name.
    let reserve = cpu_count().min(usize::from(LANES_MAX) - lanes);
    let config = EngineConfig { lanes, reserve, stable_secret, seed: args.seed, ..EngineConfig::default() };
    let engine = Engine::start(&config).map_err(|error| failure(format!("lanes: {error}")))?;
    let runtime = Runtime::new().map_err(failure)?;
    let clients = Clients::new(runtime.handle().clone(), &folders.state, stable_secret);
    let programs_engine = engine.clone();
    let state_folder = folders.state.clone();
    let door = folders.runtime.join(PROGRAMS);
    let places = (folders.state, door.clone());
    let works = Works::new(engine, kernel, &args.instance, places, runtime.handle().clone(), clients);
    let (instance, lanes_given) = (args.instance.to_string(), args.lanes.is_some());
    let parts = Parts { instance, lanes_given, works, state, early, unkept };
    let host = Arc::new(Host::start(parts, &wanted));
    serve_programs(&door, programs_engine, &host);
    match History::start(&state_folder, &host) {
        Ok(history) => host.set_history(history),
        Err(fault) => {
            tracing::error!("{fault}");
            host.note_fault(fault);
        }
    }
    tracing::info!("lanes: {lanes}; {}", socket.display());
    Told::Ready.tell();
    runtime.spawn(host::follow(Arc::clone(&host)));
    runtime.spawn(host::watch_host(Arc::clone(&host)));
    let ended = runtime.block_on(until_signal(listener, Arc::clone(&host), ending));
    Told::Stopping.tell();
    // New requests fail to connect from here on.
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(&door);
    host.shut_down();
    drop(host);
    // Who watches lanes for a while, as a trace does, is not waited for: the folders are free for the next daemon.
    runtime.shutdown_timeout(AT_THE_END);
    ended.map_err(failure)
}

/// Every socket of a program is a descriptor here: as many as the system lets us have.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it stays as it is, programs get EMFILE earlier.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Programs may come once the configuration is carried out; without a place for them the rest runs.
fn serve_programs(door: &Path, engine: Engine, host: &Arc<Host>) {
    let bound = host.with_model(|model| listener::bind(door, model));
    let started = bound.and_then(|it| Programs::start(it, engine, Arc::clone(host)));
    match started {
        Ok(programs) => host.set_programs(programs),
        Err(error) => {
            tracing::error!("{}: {error}: no programs", door.display());
            host.note_fault(format!("{}: {}: no programs", door.display(), plain(&error)));
        }
    }
}

async fn until_signal(
    listener: UnixListener,
    host: Arc<Host>,
    ending: oneshot::Receiver<()>,
) -> io::Result<()> {
    tokio::select! {
        ended = server::serve(listener, host) => return ended,
        _ = ending => {}
    }
    tracing::info!("ending");
    Ok(())
}

fn read_config(path: &Path) -> Result<Model, Refusal> {
    let named = |error: io::Error| mistake(format!("--config {}: {error}", path.display()));
    let size = std::fs::metadata(path).map_err(named)?.len();
    if size > MODEL_TEXT_MAX as u64 {
        let text = format!("--config {}: {size} bytes: at most {MODEL_TEXT_MAX}", path.display());
        return Err(mistake(text));
    }
    let text = std::fs::read_to_string(path).map_err(named)?;
    Model::from_toml(&path.to_string_lossy(), &text).map_err(|faults| mistake(first_of(&faults)))
}

/// Makes and locks the folders. Without a runtime folder there is no socket and no sense; a state folder that
/// cannot be used costs persistence only.
fn take_folders(folders: &Folders, early: &mut Vec<String>) -> Result<(Lock, Option<Lock>), Refusal> {
    let take = |path: &Path| folder::make(path).map_err(LockError::Io).and_then(|()| Lock::take(path));
    let taken =
        |path: &Path, pid: &str| failure(format!("{}: in use by firelaned, process {pid}", path.display()));
    let runtime = take(&folders.runtime).map_err(|error| match error {
        LockError::Taken(pid) => taken(&folders.runtime, &pid),
        LockError::Io(error) => failure(format!("--runtime-dir {}: {error}", folders.runtime.display())),
    })?;
    match take(&folders.state) {
        Ok(lock) => Ok((runtime, Some(lock))),
        Err(LockError::Taken(pid)) => Err(taken(&folders.state, &pid)),
        Err(LockError::Io(error)) => {
            let text =
                format!("state folder {}: {}; nothing is remembered", folders.state.display(), plain(&error));
            tracing::error!("{text}");
            early.push(text);
            Ok((runtime, None))
        }
    }
}

/// What to begin with: what is remembered, else the file, else nothing.
fn choose_model(
    state: &State,
    configured: Option<Model>,
    early: &mut Vec<String>,
) -> (Model, Option<String>) {
    match state.load() {
        Found::Model(remembered) => {
            if configured.is_some_and(|it| it != *remembered) {
                let path = state.path().display();
                tracing::warn!(
                    "the configuration remembered in {path} is used; `firelane apply` replaces it"
                );
            }
            return (*remembered, None);
        }
        Found::Nothing => {}
        // What is told of it is what keeps this one from being written.
        Found::Unread => {}
        Found::Broken(why) => {
            tracing::error!("{why}");
            early.push(why);
        }
    }
    let model = configured.unwrap_or_default();
    let kept = state.prepare(&model).and_then(|it| it.commit().map_err(|error| state.refused(&error)));
    let unkept = kept.err().map(|error| error.to_string());
    unkept.iter().for_each(|error| tracing::error!("{error}"));
    (model, unkept)
}

fn lane_count(given: Option<u16>, configured: Lanes) -> usize {
    match (given, configured) {
        (Some(given), _) => given.into(),
        (None, Lanes::Count(count)) => count.into(),
        (None, Lanes::Auto) => lanes_of(cpu_count()),
    }
}

/// One per CPU, but for one: programs, which lanes work for, need CPUs as well. With a lane on each of two CPUs each of them waits for its
/// CPU, and what programs ask for costs a quarter more.
fn lanes_of(cpus: usize) -> usize {
    cpus.saturating_sub(1).clamp(1, LANES_AUTO_MAX.into())
}

fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Removes what a daemon that died has left; its configuration stays.
fn clean(args: &Args, folders: &Folders) {
    let mut kernel = Kernel::new(args.instance.clone(), &folders.state, 1);
    kernel.recover(&Model::default());
    for socket in [SOCKET, PROGRAMS] {
        let _ = std::fs::remove_file(folders.runtime.join(socket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    fn model(text: &str) -> Model {
        Model::from_toml("test", text).unwrap()
    }

    #[test]
    fn what_is_remembered_comes_before_the_file() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        let (one, two) = (model("[etherstub.one1]\n"), model("[etherstub.two2]\n"));
        let mut early = Vec::new();
        for configured in [Some(one.clone()), Some(two), None] {
            assert_eq!(choose_model(&state, configured, &mut early), (one.clone(), None));
        }
        assert!(early.is_empty());
    }

    #[test]
    fn without_a_place_for_state_the_file_is_used_and_the_fault_is_told() {
        let one = model("[etherstub.one1]\n");
        let mut early = Vec::new();
        let state = State::new(Path::new("/nonexistent"));
        let (chosen, unkept) = choose_model(&state, Some(one.clone()), &mut early);
        assert_eq!((chosen, early.len()), (one, 0));
        assert!(unkept.as_ref().is_some_and(|it| it.contains("/nonexistent/model.toml")), "{unkept:?}");
    }

    #[test]
    fn a_broken_state_falls_back_to_the_file() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        std::fs::write(state.path(), "[[[").unwrap();
        let one = model("[etherstub.one1]\n");
        let mut early = Vec::new();
        assert_eq!(choose_model(&state, Some(one.clone()), &mut early), (one, None));
        assert_eq!(early.len(), 1);
    }

    #[test]
    fn the_option_comes_before_the_configuration_before_the_machine() {
        assert_eq!(lane_count(Some(3), Lanes::Count(5)), 3);
        assert_eq!(lane_count(None, Lanes::Count(5)), 5);
        assert_eq!(lane_count(None, Lanes::Auto), lanes_of(cpu_count()));
    }

    #[test]
    fn a_cpu_is_left_to_programs_where_there_are_several() {
        assert_eq!([1, 2, 3, 8, 49, 50, 256].map(lanes_of), [1, 1, 2, 7, 48, 48, 48]);
    }
}
