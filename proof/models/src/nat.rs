//! Rules of address translation out of arbitrary bytes: whatever ipnat(5) can say, as it may be written.

use crate::Dice;

/// A line whose words are in the order of ipnat(5), with values that fit each other mostly but not always: what the reader takes of
/// these is to be written so that it reads back.
pub fn ipnat_line(bytes: &[u8]) -> String {
    let dice = &mut Dice(bytes);
    let kind = dice.one_of(&["map", "map-block", "bimap", "rdr"]);
    let mut words = vec![kind, dice.one_of(&["w0", "web0.x1"])];
    match kind {
        "rdr" => dice.redirect(&mut words),
        _ => dice.map(kind, &mut words),
    }
    for _ in 0..dice.below(3) {
        words.push(dice.one_of(&["mssclamp 1400", "mssclamp 1", "age 60", "age 10/20", "round-robin"]));
    }
    if kind != "rdr" {
        words.push(dice.one_of(&PROTOCOLS));
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

const PROTOCOLS: [&str; 9] = ["", "", "tcp", "udp", "tcp/udp", "tcpudp", "icmp", "gre", "99"];

impl Dice<'_> {
    fn one_of(&mut self, texts: &[&'static str]) -> &'static str {
        texts[self.below(texts.len())]
    }

    /// `from end to end`
    fn nat_ends(&mut self, words: &mut Vec<&str>) {
        const NETS: [&str; 6] =
            ["any", "10.0.0.0/8", "10.1.2.3", "! 10.9.0.0/16", "0/0", "192.0.2.0/255.255.255.0"];
        const PORTS: [&str; 8] =
            ["", "", "port = 80", "port != 7", "port > 1023", "port 1:9", "port 9 >< 20", "port 9 <> 20"];
        words.extend(["from", self.one_of(&NETS), self.one_of(&PORTS)]);
        words.extend(["to", self.one_of(&NETS), self.one_of(&PORTS)]);
    }

    fn map(&mut self, kind: &str, words: &mut Vec<&str>) {
        match self.below(2) {
            0 => self.nat_ends(words),
            _ => words.push(self.one_of(&["10.0.0.0/8", "10.0.0.0/24", "10.0.0.5/32", "10.0.0.5"])),
        }
        words.extend(["->", self.one_of(&["0/32", "192.0.2.1/32", "192.0.2.0/30", "192.0.2.0/24"])]);
        const PORTS: [&str; 7] = [
            "",
            "portmap tcp/udp 1025:65000",
            "portmap udp auto",
            "portmap tcp 7",
            "icmpidmap icmp 0:65535",
            "icmpidmap icmp 5-9",
            "",
        ];
        words.push(match kind {
            "map" => self.one_of(&PORTS),
            "map-block" => self.one_of(&["", "ports auto", "ports 1", "ports 100"]),
            _ => "",
        });
    }

    fn redirect(&mut self, words: &mut Vec<&str>) {
        match self.below(2) {
            0 => self.nat_ends(words),
            _ => words.extend([self.one_of(&["0/0", "192.0.2.1/32", "192.0.2.1"]), self.port_or_two()]),
        }
        words.extend(["->", self.one_of(&["10.0.0.9", "10.0.0.9/32", "10.0.0.9,10.0.0.10"])]);
        words.push(self.one_of(&["", "port 8080", "port = 8080"]));
        words.push(self.one_of(&PROTOCOLS));
    }

    fn port_or_two(&mut self) -> &'static str {
        self.one_of(&["", "port 80", "port 80-90", "port 80:80", "port 1:65535"])
    }
}
