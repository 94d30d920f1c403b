//! The DHCP client against servers that say anything, at any time.
//!
//! A message that can be read is a fixed point. Whatever is said, the client comes to rest at every instant, asks no
//! oftener than its waits allow, and holds only what one station can have.

use core::time::Duration;

use firelane_dhcp::v4::{Action, Client, ClientConfig, Lease, Message, Phase};
use firelane_units::{Instant, MacAddr};

use crate::feedback::{note, note_form};
use crate::input::Input;

const MAC: MacAddr = MacAddr([2, 8, 32, 1, 2, 3]);
/// What a client may want at one instant: a message, the loss of a lease, another one.
const ACTIONS_MAX: usize = 8;

/// One message.
pub fn target_dhcp_message(data: &[u8]) {
    match Message::parse(data) {
        Ok(message) => {
            let written = message.emit();
            assert_eq!(Message::parse(&written), Ok(message.clone()), "written and read back");
            note((message.kind as u8, message.options.len().min(8)));
        }
        Err(error) => note_form(error),
    }
}

/// A client, its server and the time: the input says who is next.
pub fn target_dhcp_client(data: &[u8]) {
    let mut input = Input::new(data);
    let config =
        ClientConfig { mac: MAC, id: vec![255; 7], host_name: None, link_local: false, seed: input.amount() };
    let mut now = Instant::from_secs(1);
    let mut client = Client::new(now, config, None);
    let mut asked: Option<Message> = None;
    while !input.is_empty() {
        run(&mut client, now, &mut asked);
        match input.below(8) {
            // What the client waits for comes to pass.
            0 | 1 => now = client.poll_at().filter(|at| *at != Instant::FAR_FUTURE).unwrap_or(now).max(now),
            2 => now += Duration::from_millis(input.amount()),
            // An answer to what was asked, of which the input chooses kind, address and options.
            3..=5 => {
                let Some(asked) = &asked else { continue };
                let mut answer = asked.emit();
                answer[0] = 2;
                answer[16..20].copy_from_slice(&[10, 0, 0, input.u8()]);
                let len = input.below(64);
                answer.splice(240.., [&[53, 1, input.below(8) as u8], input.take(len)].concat());
                client.on_message(now, &answer);
            }
            6 => {
                let (addr, is_free) = ([10, 0, 0, input.u8()], input.flag());
                client.on_tested(now, addr.into(), is_free);
            }
            _ if input.flag() => client.refresh(now),
            _ => client.release(),
        }
        note((client.phase() as u8, client.held().is_some()));
    }
    run(&mut client, now, &mut asked);
}

fn run(client: &mut Client, now: Instant, asked: &mut Option<Message>) {
    for _ in 0..ACTIONS_MAX {
        match client.poll(now) {
            None => {
                assert!(client.poll_at().is_none_or(|at| at > now), "at rest it waits for later");
                return;
            }
            Some(Action::Broadcast(bytes) | Action::Unicast(_, bytes)) => {
                *asked = Some(Message::parse(&bytes).expect("what is sent can be read"));
            }
            Some(Action::Bound(held)) => {
                check(&held.lease);
                assert!(held.until > now && client.phase() == Phase::Bound);
            }
            Some(Action::Test(lease) | Action::Lost(lease, _)) => check(&lease),
        }
    }
    panic!("no rest at {now:?} in {:?}", client.phase());
}

fn check(lease: &Lease) {
    let prefix = lease.prefix().expect("the length fits the address");
    assert!(!lease.addr.is_unspecified() && !lease.addr.is_multicast() && !lease.addr.is_broadcast());
    assert!(prefix.prefix_len() > 0 && lease.renew <= lease.rebind);
    assert!(lease.routes.len() <= 64 && lease.name_servers.len() <= 8 && lease.domains.len() <= 8);
}
