//! An unmodified nginx with one worker, and wrk that asks it: for `nginx-close`, `sendfile` and `fused-nginx-close`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use crate::cpu::PLACEMENTS;
use crate::duel::{self, Placed, Side};
use crate::peer::{self, Place, Result};
use crate::scene::{CLIENT, KERNEL_HOST, SERVER, Scene, Server};

/// Of the first in a scene.
const PORT: usize = 8080;
/// What it serves, and how many bytes that is.
pub(crate) const SMALL: (&str, usize) = ("small", 1 << 10);
pub(crate) const LARGE: (&str, usize) = ("large", 1 << 20);

/// The server.
#[derive(Debug)]
pub(crate) struct Nginx<'a> {
    server: Server,
    host: &'a str,
    port: usize,
    client_cpu: &'static str,
}

/// Where wrk and nginx are, and nginx' address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) name: &'static str,
    pub(crate) host: &'static str,
    pub(crate) client: Place<'a>,
    pub(crate) server: Place<'a>,
}

/// What wrk has counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) requests: f64,
    pub(crate) per_second: f64,
}

impl<'a> Nginx<'a> {
    /// Starts it in its place and at a placement, the `nth` in this scene, and waits until `client` is answered.
    pub(crate) fn start(
        scene: &Scene,
        place: Place<'_>,
        host: &'a str,
        nth: usize,
        client: Place<'_>,
        placement: usize,
    ) -> Result<Self> {
        let folder = scene.sandbox.folder();
        for (name, bytes) in [SMALL, LARGE] {
            std::fs::write(folder.join(name), vec![b'x'; bytes])?;
        }
        let file = folder.join(format!("nginx-{nth}.conf"));
        std::fs::write(&file, config(folder, host, nth))?;
        let [client_cpu, server_cpu] = PLACEMENTS[placement].1;
        let mut command = place.command_on(server_cpu, OsStr::new("nginx"))?;
        let server = Server::start(command.arg("-c").arg(file))?;
        let nginx = Self { server, host, port: PORT + nth, client_cpu };
        peer::retry(|| nginx.wrk(client, SMALL.0, "1", &[]))?;
        Ok(nginx)
    }

    /// Its processes: who started the worker, and the worker.
    pub(crate) fn processes(&self) -> Result<Vec<u32>> {
        let master = self.server.pid();
        let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
        let workers =
            children.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<_>, _>>()?;
        Ok([vec![master], workers].concat())
    }

    /// Asks for a file over and over, for so many seconds; every answer is a good one.
    pub(crate) fn wrk(
        &self,
        client: Place<'_>,
        file: &str,
        seconds: &str,
        words: &[&str],
    ) -> Result<Counted> {
        let mut command = client.command_on(self.client_cpu, OsStr::new("timeout"))?;
        command.args(["20", "wrk", "-t1", "-c16", "-d", seconds]).args(words);
        command.arg(format!("http://{}:{}/{file}", self.host, self.port));
        let output = command.stdin(Stdio::null()).output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        let requests = told.lines().find_map(|line| line.trim().split_once(" requests in")?.0.parse().ok());
        let rate = told.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
        let is_good = !told.contains("Socket errors") && !told.contains("Non-2xx");
        match (requests, rate) {
            (Some(requests), Some(per_second)) if requests > 0.0 && is_good => {
                Ok(Counted { requests, per_second })
            }
            _ => Err(format!("wrk: {told}{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

/// Two sides whose work is to serve `file` for a second, to a wrk with these words: ours, and the kernel's over veth, at each placement.
pub(crate) fn sides<'a>(
    scene: &'a Scene,
    ours: Pair<'a>,
    file: &'static str,
    words: &'static [&'static str],
) -> Result<[Placed<Side<'a>>; 2]> {
    let kernel = Pair {
        name: "kernel, veth",
        host: KERNEL_HOST,
        client: scene.netns(CLIENT),
        server: scene.netns(SERVER),
    };
    let side = |nth, pair: Pair<'a>, placement| -> Result<Side<'a>> {
        let Pair { name, host, client, server } = pair;
        let nginx = Nginx::start(scene, server, host, nth, client, placement)?;
        let servers = nginx.processes()?;
        let daemon = matches!(server, Place::Preloaded(..)).then(|| scene.daemon());
        let work = Box::new(move || Ok(nginx.wrk(client, file, "1", words)?.requests));
        Ok(Side { name, servers, daemon, work })
    };
    Ok([
        duel::at_each_placement(|placement| side(2 * placement, ours, placement))?,
        duel::at_each_placement(|placement| side(2 * placement + 1, kernel, placement))?,
    ])
}

/// One worker, which is not who started it only where that is root.
fn config(folder: &Path, host: &str, nth: usize) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name}-{nth};"))
        .concat();
    format!(
        "user root; daemon off; worker_processes 1; pid {folder}/pid-{nth}; error_log {folder}/log-{nth};
        events {{}} http {{ access_log off; sendfile on; {temporary}
        server {{ listen {host}:{}; root {folder}; }} }}",
        PORT + nth
    )
}
