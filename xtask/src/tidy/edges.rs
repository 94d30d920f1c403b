//! Which crate may know which: the design's table of allowed edges, checked against `cargo metadata`.
//!
//! Only normal and build dependencies count; tests may see more.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finding;

const BASE: &[&str] = &["firelane-units", "firelane-wire", "firelane-frame", "firelane-table"];
const DRIVERS: &[&str] = &[
    "firelane-driver-memory",
    "firelane-driver-tap",
    "firelane-driver-packet",
    "firelane-driver-memif",
    "firelane-driver-afxdp",
    "firelane-driver-capture",
    "firelane-shm",
];
const PATH: &[&str] = &[
    "firelane-classify",
    "firelane-filter",
    "firelane-nat",
    "firelane-tunnel",
    "firelane-flow",
    "firelane-switch",
    "firelane-ip",
    "firelane-udp",
    "firelane-tcp",
    "firelane-socket",
    "firelane-lane",
];

/// The crates of this repository that `name` may depend on; `None` for an unknown crate.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    let sets: &[&[&'static str]] = match name {
        "firelane-units" => &[],
        "firelane-wire" | "firelane-frame" | "firelane-model" => &[&["firelane-units"]],
        "firelane-table" => &[&["firelane-units", "firelane-frame"]],
        name if DRIVERS.contains(&name) => &[BASE],
        "firelane-classify" | "firelane-filter" | "firelane-nat" | "firelane-tunnel" | "firelane-flow"
        | "firelane-switch" | "firelane-ip" | "firelane-udp" | "firelane-tcp" | "firelane-socket" => &[BASE],
        "firelane-lane" => &[BASE, PATH],
        "firelane-fpm" => &[&["firelane-units"]],
        "firelane-plan" | "firelane-api" => &[&["firelane-model", "firelane-units"]],
        "firelane" => &[BASE, DRIVERS, PATH, &["firelane-model"]],
        "firelane-http" | "firelane-simple" | "firelane-dhcp" => &[&["firelane", "firelane-units"]],
        "firelane-daemon" => &[&[
            "firelane",
            "firelane-plan",
            "firelane-fpm",
            "firelane-api",
            "firelane-model",
            "firelane-units",
            "firelane-http",
            "firelane-simple",
            "firelane-shm",
            "firelane-dhcp",
        ]],
        "firelane-shim" => &[BASE, &["firelane-shm"]],
        "firelane-cli" => &[&["firelane-api", "firelane-model", "firelane-units"]],
        "xtask" => &[],
        // The proof floor may see everything; nothing may see it but itself.
        name if PROOF.contains(&name) => return Some(Vec::new()),
        _ => return None,
    };
    Some(sets.concat())
}

const PROOF: &[&str] = &[
    "firelane-models",
    "firelane-sim",
    "firelane-world",
    "firelane-skipped",
    "firelane-scripts",
    "firelane-packetdrill",
    "firelane-interop",
    "firelane-fuzz",
    "firelane-bench",
];

/// Reads the workspace's metadata and reports every edge that the table does not allow.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    Ok(packages.iter().flat_map(check_package).collect())
}

fn check_package(package: &Value) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let Some(allowed) = allowed(name) else {
        return vec![Finding::new(manifest, 1, format!("{name} is not in xtask/src/tidy/edges.rs"))];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter(|d| d["kind"] != "dev" && d["path"].is_string())
        .filter_map(|d| d["name"].as_str())
        .filter(|d| !PROOF.contains(&name) && !allowed.contains(d))
        .map(|d| Finding::new(manifest, 1, format!("{name} may not depend on {d}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_forbidden_edge_is_found_and_a_test_edge_is_not() {
        let package = |kind: Value| {
            json!({"name": "firelane-tcp", "manifest_path": "x", "dependencies": [
                {"name": "firelane-ip", "kind": kind, "path": "/x"},
                {"name": "firelane-wire", "kind": null, "path": "/x"},
                {"name": "siphasher", "kind": null, "path": null},
            ]})
        };
        assert_eq!(check_package(&package(Value::Null)).len(), 1);
        assert_eq!(check_package(&package(json!("dev"))).len(), 0);
    }
}
