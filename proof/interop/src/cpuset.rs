//! CPUs that a daemon under test may use, taken from it and given back while it runs.
//!
//! The kernel moves the threads of a cpuset as it does when a CPU goes off line, and nothing else on the machine feels it
//! (cpuset(7)). Only root may make one; tests that need it say so where they cannot have it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where cpusets are made: that of the first hierarchy, or of the second where its controller is enabled for children.
const PLACES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/cpuset/cpuset.cpus"),
    ("/sys/fs/cgroup", "/sys/fs/cgroup/cpuset.cpus.effective"),
];
/// What ends in it may be a moment in ending.
const TRIES: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(20);

/// A cpuset of a test's own; it goes with its value, after whatever ran in it.
#[derive(Debug)]
pub struct Cpuset {
    folder: PathBuf,
}

impl Cpuset {
    /// One with all CPUs, if this process may make it.
    pub fn make() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("firelane-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        PLACES.iter().filter(|(_, cpus)| Path::new(cpus).exists()).find_map(|(place, cpus)| {
            let folder = Path::new(place).join(&name);
            fs::create_dir(&folder).ok()?;
            let made = Self { folder };
            made.fill(Path::new(place), Path::new(cpus)).ok().map(|()| made)
        })
    }

    /// What the first hierarchy demands before anything may run in it.
    fn fill(&self, place: &Path, cpus: &Path) -> io::Result<()> {
        if let Ok(memory) = fs::read_to_string(place.join("cpuset.mems")) {
            fs::write(self.folder.join("cpuset.mems"), memory)?;
        }
        fs::write(self.folder.join("cpuset.cpus"), fs::read_to_string(cpus)?)
    }

    /// From now on whatever is in it may use these CPUs only.
    ///
    /// # Panics
    /// If the kernel refuses that.
    pub fn allow(&self, cpus: &str) {
        fs::write(self.folder.join("cpuset.cpus"), cpus).expect("CPUs of this machine");
    }

    /// The file that takes the number of a process that is to be in it.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

/// The first and the last CPU that this process may use.
///
/// # Panics
/// Where Linux does not tell.
pub fn cpu_ends() -> (String, String) {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let numbers: Vec<&str> = all.expect("Linux tells").trim().split([',', '-']).collect();
    (numbers[0].to_owned(), numbers[numbers.len() - 1].to_owned())
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(BETWEEN);
        }
    }
}
