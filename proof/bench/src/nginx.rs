//! An unmodified nginx with one worker, and wrk that asks it: for `nginx-close`, `sendfile` and `fused-nginx-close`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use crate::duel::Side;
use crate::peer::{self, Place, Result};
use crate::scene::{CLIENT, KERNEL_HOST, SERVER, Scene, Server};

const PORT: u16 = 8080;
/// What it serves, and how many bytes that is.
pub(crate) const SMALL: (&str, usize) = ("small", 1 << 10);
pub(crate) const LARGE: (&str, usize) = ("large", 1 << 20);

/// The server.
#[derive(Debug)]
pub(crate) struct Nginx<'a> {
    server: Server,
    host: &'a str,
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
    /// Starts it in its place, the `nth` in this scene, and waits until `client` is answered.
    pub(crate) fn start(
        scene: &Scene,
        place: Place<'_>,
        host: &'a str,
        nth: usize,
        client: Place<'_>,
    ) -> Result<Self> {
        let folder = scene.sandbox.folder();
        for (name, bytes) in [SMALL, LARGE] {
            std::fs::write(folder.join(name), vec![b'x'; bytes])?;
        }
        let file = folder.join(format!("nginx-{nth}.conf"));
        std::fs::write(&file, config(folder, host, nth))?;
        let mut command = place.command(OsStr::new("nginx"))?;
        let server = Server::start(command.arg("-c").arg(file))?;
        let nginx = Self { server, host };
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
        let mut command = client.command(OsStr::new("timeout"))?;
        command.args(["20", "wrk", "-t1", "-c16", "-d", seconds]).args(words);
        command.arg(format!("http://{}:{PORT}/{file}", self.host));
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

/// Two sides whose work is to serve `file` for a second, to a wrk with these words: ours, and the kernel's over veth.
pub(crate) fn sides<'a>(
    scene: &'a Scene,
    ours: Pair<'a>,
    file: &'static str,
    words: &'static [&'static str],
) -> Result<[Side<'a>; 2]> {
    let kernel = Pair {
        name: "kernel, veth",
        host: KERNEL_HOST,
        client: scene.netns(CLIENT),
        server: scene.netns(SERVER),
    };
    let side = |nth, pair: Pair<'a>| -> Result<Side<'a>> {
        let Pair { name, host, client, server } = pair;
        let nginx = Nginx::start(scene, server, host, nth, client)?;
        let mut parties = nginx.processes()?;
        if let Place::Preloaded(..) = server {
            parties.push(scene.daemon());
        }
        Ok(Side { name, parties, work: Box::new(move || Ok(nginx.wrk(client, file, "1", words)?.requests)) })
    };
    Ok([side(0, ours)?, side(1, kernel)?])
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
        server {{ listen {host}:{PORT}; root {folder}; }} }}"
    )
}
