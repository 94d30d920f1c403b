//! Who a client says it is: the same to DHCPv4 and DHCPv6, and the same after a restart (RFC 4361, RFC 8415 §11).
//!
//! The daemon makes one [`Duid`] of the host's kept secret, and an identifier of each interface of its name, so that
//! neither a new Ethernet address nor another order of interfaces makes a host a stranger to its server.

/// RFC 6355: a DUID that is 128 bits of the host's own.
const TYPE_UUID: u16 = 4;
/// RFC 4361 §6.1: a client identifier that consists of an interface's identifier and a DUID.
const TYPE_DUID: u8 = 255;

/// The host's identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duid(Vec<u8>);

impl Duid {
    /// Of 128 bits that are the host's alone and stay.
    pub fn new(unique: [u8; 16]) -> Self {
        Self([&TYPE_UUID.to_be_bytes()[..], &unique].concat())
    }

    /// As it stands in messages of DHCPv6.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The client identifier of DHCPv4 for an interface (RFC 4361 §6.1).
    pub fn client_id(&self, iaid: u32) -> Vec<u8> {
        [&[TYPE_DUID][..], &iaid.to_be_bytes(), &self.0].concat()
    }
}

/// The identifier of an interface: a hash of its name (FNV-1a), which two of one host hardly share.
pub fn iaid(interface: &str) -> u32 {
    interface.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_identifier_has_its_parts_in_order() {
        let duid = Duid::new([7; 16]);
        let id = duid.client_id(0x0102_0304);
        assert_eq!(id[..7], [255, 1, 2, 3, 4, 0, 4]);
        assert_eq!((id.len(), &id[7..]), (23, &[7; 16][..]));
        assert_ne!(iaid("web0"), iaid("web1"));
    }
}
