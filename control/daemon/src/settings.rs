//! From the model's words to the engine's: protocol properties and the attributes of flows.
//!
//! Called by `works.rs`. A property that the engine cannot carry out is refused by name.

use firelane::{Algorithm, DsField, FlowMatch, IpProtocol, ListenConfig, TcpConfig};
use firelane_api::{ApiError, Status};
use firelane_model::{Congestion, Tunables};

/// TCP with the properties of a netstack.
pub(crate) fn tcp(tunables: &Tunables) -> Result<TcpConfig, ApiError> {
    let time_wait = tunables.time_wait_interval().map(|it| it.as_millis().to_string());
    let unsettable = [
        ("ttl", tunables.ttl().map(|it| it.to_string())),
        ("hoplimit", tunables.hoplimit().map(|it| it.to_string())),
        ("time_wait_interval", time_wait),
    ];
    for (name, value) in unsettable {
        if let Some(value) = value {
            return Err(ApiError::new(Status::NotSupported, name, value, "only the default"));
        }
    }
    let mut config = TcpConfig::default();
    if let Some(bytes) = tunables.recv_buf() {
        config.max_receive_buffer = config.max_receive_buffer.max(bytes);
    }
    match tunables.congestion_control {
        Some(Congestion::NewReno) => config.flight.algorithm = Algorithm::NewReno,
        Some(Congestion::Cubic) => config.flight.algorithm = Algorithm::Cubic,
        None => {}
    }
    Ok(config)
}

/// A listener with the properties of its netstack.
pub(crate) fn listen(tunables: &Tunables) -> ListenConfig {
    /// Solaris' `conn_req_max_q` is 128; browsers and load generators open more at once.
    const BACKLOG: usize = 1024;
    let mut config = ListenConfig { backlog: BACKLOG, ..ListenConfig::default() };
    let bytes = |it: Option<u32>| it.and_then(|it| usize::try_from(it).ok());
    config.backlog = bytes(tunables.conn_req_max()).unwrap_or(config.backlog);
    config.rings.send_capacity = bytes(tunables.send_buf()).unwrap_or(config.rings.send_capacity);
    config.rings.recv_capacity = bytes(tunables.recv_buf()).unwrap_or(config.rings.recv_capacity);
    config
}

/// What a flow matches.
pub(crate) fn rule(matching: &firelane_model::FlowMatch) -> FlowMatch {
    FlowMatch {
        local_ip: matching.local_ip,
        remote_ip: matching.remote_ip,
        transport: matching.transport.map(|it| IpProtocol(it.number())),
        local_port: matching.local_port,
        remote_port: matching.remote_port,
        dsfield: matching.dsfield.and_then(|it| DsField::new(it.value(), it.mask())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Port;

    #[test]
    fn properties_reach_tcp_and_listeners_or_are_refused_by_name() {
        let mut tunables = Tunables::default();
        tunables.set("congestion_control", "newreno").unwrap();
        tunables.set("recv_buf", "16777216").unwrap();
        tunables.set("conn_req_max", "7").unwrap();
        let config = tcp(&tunables).unwrap();
        assert_eq!((config.flight.algorithm, config.max_receive_buffer), (Algorithm::NewReno, 16 << 20));
        let listener = listen(&tunables);
        assert_eq!((listener.backlog, listener.rings.recv_capacity), (7, 16 << 20));
        tunables.set("ttl", "9").unwrap();
        assert_eq!(tcp(&tunables).unwrap_err().field, "ttl");
    }

    #[test]
    fn every_attribute_of_a_flow_arrives() {
        let text = "local_ip=10.0.0.0/24,remote_ip=10.1.0.0/16,transport=udp,local_port=5,remote_port=6,dsfield=0x2c:0xfc";
        let rule = rule(&text.parse().unwrap());
        assert_eq!(rule.local_ip, "10.0.0.0/24".parse().ok());
        assert_eq!(rule.remote_ip, "10.1.0.0/16".parse().ok());
        assert_eq!(rule.transport, Some(IpProtocol(17)));
        assert_eq!((rule.local_port, rule.remote_port), (Some(Port(5)), Some(Port(6))));
        assert_eq!(rule.dsfield, DsField::new(0x2c, 0xfc));
    }
}
