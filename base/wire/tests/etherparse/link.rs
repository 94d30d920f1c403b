//! Ethernet, VLAN and ARP.
//!
//! We refuse the reserved VLAN identifier and ARP operations other than request and reply; `etherparse` reads
//! them.

use etherparse as theirs;
use firelane_units::{MacAddr, VlanId};
use firelane_wire::{
    ArpOperation, ArpRepr, ArpView, EtherType, EthernetRepr, EthernetView, VlanRepr, VlanView,
};
use proptest::prelude::*;

use crate::{bytes, damaged};

fn arp() -> impl Strategy<Value = Vec<u8>> {
    any::<(bool, [[u8; 6]; 2], [[u8; 4]; 2])>().prop_map(|(reply, [sender_mac, target_mac], [from, to])| {
        let operation = if reply { theirs::ArpOperation::REPLY } else { theirs::ArpOperation::REQUEST };
        let packet = theirs::ArpEthIpv4Packet {
            operation,
            sender_mac,
            sender_ipv4: from,
            target_mac,
            target_ipv4: to,
        };
        packet.to_bytes().to_vec()
    })
}

proptest! {
    #[test]
    fn ethernet(bytes in bytes(40)) {
        let (ours, theirs) = (EthernetView::parse(&bytes), theirs::Ethernet2Slice::from_slice_without_fcs(&bytes));
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.dst().0, theirs.destination());
            prop_assert_eq!(ours.src().0, theirs.source());
            prop_assert_eq!(ours.ethertype().0, theirs.ether_type().0);
            prop_assert_eq!(ours.payload(), theirs.payload().payload);
            let mut emitted = [0; 14];
            EthernetRepr::parse(&ours).emit(&mut emitted);
            prop_assert_eq!(emitted, theirs.to_header().to_bytes());
        }
    }

    #[test]
    fn vlan(bytes in bytes(12)) {
        let (ours, theirs) = (VlanView::parse(&bytes), theirs::SingleVlanSlice::from_slice(&bytes));
        let reserved = theirs.as_ref().is_ok_and(|vlan| vlan.vlan_identifier().value() == 4095);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok() && !reserved, "we refuse the reserved identifier");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.priority(), theirs.priority_code_point().value());
            prop_assert_eq!(ours.drop_eligible(), theirs.drop_eligible_indicator());
            prop_assert_eq!(ours.id().map_or(0, VlanId::id), theirs.vlan_identifier().value());
            prop_assert_eq!(ours.ethertype().0, theirs.ether_type().0);
            prop_assert_eq!(ours.payload(), theirs.payload_slice());
            let mut emitted = [0; 4];
            VlanRepr::parse(&ours).emit(&mut emitted);
            prop_assert_eq!(emitted, theirs.to_header().to_bytes());
        }
    }

    #[test]
    fn arp_packets(bytes in prop_oneof![bytes(60), damaged(arp())]) {
        let theirs = theirs::ArpPacketSlice::from_slice(&bytes);
        let theirs = theirs.ok().and_then(|packet| packet.to_packet().try_eth_ipv4().ok());
        let handled = theirs.as_ref().is_some_and(|packet| matches!(packet.operation.0, 1 | 2));
        let ours = ArpView::parse(&bytes);
        prop_assert_eq!(ours.is_ok(), handled, "we refuse operations that are neither request nor reply");
        if let (Ok(ours), Some(theirs)) = (ours, theirs) {
            let ours = ArpRepr::parse(&ours);
            prop_assert_eq!(ours.operation == ArpOperation::Reply, theirs.operation.0 == 2);
            prop_assert_eq!((ours.sender_mac.0, ours.target_mac.0), (theirs.sender_mac, theirs.target_mac));
            prop_assert_eq!((ours.sender_ip, ours.target_ip), (theirs.sender_ipv4_addr(), theirs.target_ipv4_addr()));
            let mut emitted = [0; 28];
            ours.emit(&mut emitted);
            prop_assert_eq!(emitted, theirs.to_bytes());
        }
    }
}

#[test]
fn a_tagged_arp_request_is_one_frame_for_both() {
    let (src, id) = (MacAddr([2, 8, 0x20, 0, 0, 1]), VlanId::new(7));
    let mut frame = vec![0; 46];
    EthernetRepr { dst: MacAddr::BROADCAST, src, ethertype: EtherType::VLAN }.emit(&mut frame);
    VlanRepr { priority: 3, drop_eligible: false, id, ethertype: EtherType::ARP }.emit(&mut frame[14..]);
    ArpRepr::request(src, [10, 0, 0, 1].into(), [10, 0, 0, 2].into()).emit(&mut frame[18..]);
    let sliced = theirs::SlicedPacket::from_ethernet(&frame).unwrap();
    assert_eq!(sliced.vlan_ids()[..], [7.try_into().unwrap()]);
    let Some(theirs::NetSlice::Arp(arp)) = sliced.net else { panic!("no ARP packet") };
    assert_eq!(arp.target_protocol_addr(), [10, 0, 0, 2]);
}
