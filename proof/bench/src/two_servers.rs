//! Where `tap-bulk` and `udp` play: a namespace `client` of the kernel's, with a TAP to a Firelane server and a veth pair
//! to the kernel's own server in the namespace `server`.

use firelane::{Stack, TapConfig, open_tap};
use firelane_units::{MacAddr, Mtu};

use crate::cpu;
use crate::kernel::SERVER_CPU;
use crate::peer::Result;

/// Arguments of ip(8), line by line.
pub(crate) const TOPOLOGY: &[&str] = &[
    "netns add client",
    "netns add server",
    "link add near netns client type veth peer name far netns server",
    "-n client address add 10.1.0.1/24 dev near",
    "-n server address add 10.1.0.2/24 dev far",
    "-n client link set near up",
    "-n server link set far up",
];
/// Where the servers listen.
pub(crate) const FIRELANE_ADDRESS: &str = "10.2.0.2:5001";
pub(crate) const KERNEL_ADDRESS: &str = "10.1.0.2:5001";

const CLIENT_NETNS: &str = "/run/netns/client";
const TAP_ADDRESS: &str = "10.2.0.1/24";

/// In the process of the Firelane server, on the servers' CPU: a stack on a TAP in the client's namespace.
pub(crate) fn tap_stack() -> Result<Stack> {
    cpu::bind(SERVER_CPU)?;
    let config = TapConfig {
        queues: 1,
        mtu: Mtu::ETHERNET,
        mac: MacAddr([2, 8, 0x20, 0, 0, 1]),
        addresses: vec![TAP_ADDRESS.parse()?],
        namespace: Some(CLIENT_NETNS.into()),
    };
    let queues = open_tap("tap0", &config)?.into_iter().map(Into::into).collect();
    let builder = Stack::builder().interface_queues(queues).mac("02:08:20:00:00:02")?;
    Ok(builder.address("10.2.0.2/24")?.build()?)
}
