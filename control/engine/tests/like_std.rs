//! What a program that was written for std expects of the sockets without having read about them.

use std::io::ErrorKind;

use firelane::{Stack, WireConfig, wire};

#[test]
fn an_address_that_no_station_can_have_is_refused_in_words() {
    for text in
        ["10.0.0.0/24", "10.0.0.255/24", "127.0.0.1/8", "224.0.0.1/4", "0.0.0.0/0", "::1/128", "10.0.0.1"]
    {
        let refused = Stack::builder().interface(wire(WireConfig::default()).0).address(text).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{text}");
        let said = refused.to_string();
        assert!(said.contains(&format!("{text:?}")) && said.len() > 50, "{said}");
    }
}
