//! The DHCPv6 client against servers and routers that say anything, at any time: the sibling of `dhcp.rs`.

use core::time::Duration;

use firelane_dhcp::v6::{Action, Client, ClientConfig, Lease, Message, MessageType, Phase, Wanted};
use firelane_units::Instant;

use crate::feedback::{note, note_form};
use crate::input::Input;

const DUID: [u8; 4] = [0, 4, 1, 2];
const IAID: u32 = 7;
/// What a client may want at one instant: a message, the loss of a lease, another one.
const ACTIONS_MAX: usize = 8;

/// One message.
pub fn target_dhcp6_message(data: &[u8]) {
    match Message::parse(data) {
        Ok(message) => {
            assert_eq!(message.emit(), data, "written as it was read");
            note((message.kind as u8, data.len().min(64) as u8));
        }
        Err(error) => note_form(error),
    }
}

/// A client, its servers, its routers and the time: the input says who is next.
pub fn target_dhcp6_client(data: &[u8]) {
    let mut input = Input::new(data);
    let config = ClientConfig { duid: DUID.to_vec(), iaid: IAID, seed: input.amount() };
    let mut now = Instant::from_secs(1);
    let mut client = Client::new(now, config, None);
    client.set_wanted(now, Wanted::Addresses);
    let mut asked: Option<Message> = None;
    while !input.is_empty() {
        run(&mut client, now, &mut asked);
        match input.below(8) {
            // What the client waits for comes to pass.
            0 | 1 => now = client.poll_at().filter(|at| *at != Instant::FAR_FUTURE).unwrap_or(now).max(now),
            2 => now += Duration::from_millis(input.amount()),
            3..=5 => {
                let Some(asked) = &asked else { continue };
                let answer = answer(asked, &mut input);
                client.on_message(now, &answer);
            }
            6 => {
                let (addr, is_free) = (addr(input.u8()), input.flag());
                client.on_tested(now, addr.into(), is_free);
            }
            _ if input.flag() => client.refresh(now),
            _ if input.flag() => client.set_wanted(now, Wanted::Information),
            _ => client.release(now),
        }
        note((client.phase() as u8, client.held().is_some()));
    }
    run(&mut client, now, &mut asked);
}

fn addr(last: u8) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// An answer to what was asked, of which the input chooses kind, address, lifetimes and what stands behind.
fn answer(asked: &Message, input: &mut Input<'_>) -> Vec<u8> {
    let kind = if input.flag() { MessageType::Advertise } else { MessageType::Reply };
    let mut message = Message::new(kind, asked.xid);
    message.options.add(1, DUID);
    message.options.add(2, [0, 3, input.u8() & 1]);
    let times = [input.u8(), input.u8(), input.u8(), input.u8()].map(|it| (u32::from(it) << 4).to_be_bytes());
    let address = [&addr(input.u8())[..], &times[2..].concat()].concat();
    let inner = [&[0, 5, 0, 24][..], &address].concat();
    message.options.add(3, [&IAID.to_be_bytes()[..], &times[..2].concat(), &inner].concat());
    let len = input.below(48);
    [&message.emit()[..], input.take(len)].concat()
}

fn run(client: &mut Client, now: Instant, asked: &mut Option<Message>) {
    for _ in 0..ACTIONS_MAX {
        match client.poll(now) {
            None => {
                assert!(client.poll_at().is_none_or(|at| at > now), "at rest it waits for later");
                return;
            }
            Some(Action::Send(bytes)) => {
                *asked = Some(Message::parse(&bytes).expect("what is sent can be read"));
            }
            Some(Action::Bound(held)) => {
                check(&held.lease);
                assert!(held.until > now && client.phase() == Phase::Bound);
            }
            Some(Action::Test(lease) | Action::Retire(lease) | Action::Lost(lease, _)) => check(&lease),
            Some(Action::Informed(network)) => assert!(network.name_servers.len() <= 8),
        }
    }
    panic!("no rest at {now:?} in {:?}", client.phase());
}

fn check(lease: &Lease) {
    assert!(
        !lease.addr.is_unspecified() && !lease.addr.is_multicast() && !lease.addr.is_unicast_link_local()
    );
    assert!(lease.renew <= lease.rebind && lease.valid >= lease.preferred.filter(|_| lease.valid.is_some()));
    assert!(lease.network.name_servers.len() <= 8 && lease.network.domains.len() <= 8);
}
